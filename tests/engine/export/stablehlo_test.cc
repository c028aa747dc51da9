#include "engine/export/stablehlo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/random.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/graph/ops/state.h"
#include "engine/kernels/backend.h"
#include "engine/nn/optimizers.h"
#include "engine/runtime/executor.h"
#include "tests/support/message_of.h"

namespace replicant::exporting {
namespace {

using graph::CallSite;
using graph::Graph;
using graph::Output;
using ::testing::HasSubstr;
using testing::MessageOf;
using Kind = StableHloArgument::Kind;

constexpr CallSite kSite{"step.cc", 7};

StableHloModule ModuleOf(const Graph& graph, const std::vector<Output>& outputs,
                         const std::vector<Output>& updates) {
  StableHloOptions options{.name = "test"};
  for (size_t i = 0; i < outputs.size(); ++i) {
    options.output_names.push_back("y" + std::to_string(i));
  }
  return ToStableHlo(graph::ExtractProgram(graph, outputs, updates), options);
}

// A counter, noise, a parameter and one that is only read.
struct SmallStep {
  SmallStep() {
    const nn::StepCounter counter = nn::AddStepCounter(graph);
    const Output x = graph.Input("x", DType::kF32, Shape({4, 3}));
    const Output noise = graph::RandomInt(
        {.name = "noise", .step = counter.value}, Shape({4, 3}), -2, 3);
    const graph::VariableId w =
        graph.AddVariable({.name = "w", .shape = Shape({3})});
    const graph::VariableId fixed =
        graph.AddVariable({.name = "fixed", .shape = Shape({})});
    graph.AddVariable({.name = "unused", .shape = Shape({5})});
    const Output y = graph::Add(graph::Add(x, graph::Cast(noise, DType::kF32)),
                                graph::Add(graph.Read(w), graph.Read(fixed)));
    loss = graph::ReduceSum(y);
    updates = {counter.advance,
               graph::Assign(graph, w, graph::ReduceSum(y, {.axes = {0}}))};
  }

  Graph graph{/*seed=*/1};
  Output loss;
  std::vector<Output> updates;
};

TEST(StableHloTest, ArgumentsAreVariablesInputsAndDraws) {
  SmallStep step;
  const StableHloModule module =
      ModuleOf(step.graph, {step.loss}, step.updates);
  std::vector<std::string> names;
  for (const StableHloArgument& argument : module.arguments) {
    names.push_back(argument.name);
    const bool is_variable = argument.kind == Kind::kVariable;
    EXPECT_EQ(argument.is_per_replica, !is_variable) << argument.name;
    EXPECT_EQ(argument.aliased_result.has_value(),
              is_variable && argument.name != "fixed")
        << argument.name;
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"step", "w", "fixed", "x", "noise"}));
  EXPECT_EQ(module.arguments[3].kind, Kind::kInput);
  EXPECT_EQ(module.arguments[4].kind, Kind::kDraw);
  ASSERT_EQ(module.results.size(), 3U);
  EXPECT_EQ(module.results[0].name, "step");
  EXPECT_EQ(module.results[1].name, "w");
  EXPECT_TRUE(module.results[1].is_per_replica);
  EXPECT_EQ(module.results[2].name, "y0");
  EXPECT_THAT(module.text,
              HasSubstr("%arg0: tensor<i64> {tf.aliasing_output = 0 : i32} "
                        "loc(\"step\"),\n"));
  EXPECT_THAT(module.text, HasSubstr("module @test attributes"));
}

TEST(StableHloTest, TheHostDrawsWithTheCountersAlone) {
  SmallStep step;
  const StableHloModule module =
      ModuleOf(step.graph, {step.loss}, step.updates);
  ASSERT_EQ(module.draws.outputs.size(), 1U);
  EXPECT_EQ(module.draws.outputs[0].producer().op->name, "RandomInt");
  EXPECT_EQ(module.draws.updates.size(), 1U);
  ASSERT_EQ(module.draws.graph->variables().size(), 1U);
  EXPECT_EQ(module.draws.graph->variables()[0].name, "step");
}

TEST(StableHloTest, TheDescriptionSaysHowToDraw) {
  SmallStep step;
  const auto description = nlohmann::json::parse(
      DescribeStableHlo(ModuleOf(step.graph, {step.loss}, step.updates)));
  EXPECT_EQ(description["num_replicas"], 1);
  const auto& noise = description["arguments"][4];
  EXPECT_EQ(noise["kind"], "draw");
  EXPECT_EQ(noise["dtype"], "i32");
  EXPECT_EQ(noise["shape"], (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(noise["draw"]["op"], "RandomInt");
  EXPECT_EQ(noise["draw"]["low"], -2);
  EXPECT_EQ(noise["draw"]["high"], 3);
  EXPECT_EQ(noise["draw"]["step"], "step");
  EXPECT_EQ(description["arguments"][1]["aliased_result"], 1);
  EXPECT_EQ(description["results"][2]["kind"], "output");
}

// The rules of docs/export.md for hosts that have only the description.
TEST(StableHloTest, TheFormulaOfThePageGivesTheDraws) {
  SmallStep step;
  const StableHloModule module =
      ModuleOf(step.graph, {step.loss}, step.updates);
  const auto description = nlohmann::json::parse(DescribeStableHlo(module));
  const auto& draw = description["arguments"][4]["draw"];
  const uint64_t key =
      std::stoull(draw["key"].get<std::string>(), nullptr, /*base=*/16);
  const double low = draw["low"];
  const double high = draw["high"];

  const auto backend = kernels::MakeBackend("reference");
  runtime::VariableStore store(*backend, /*seed=*/1);
  runtime::Executor plan(
      *module.draws.graph,
      {.outputs = module.draws.outputs, .updates = module.draws.updates},
      store);
  for (uint32_t s = 0; s < 2; ++s) {
    plan.Run();
    const auto numbers = plan.output(0).Span<int32_t>();
    for (uint32_t i = 0; i < 12; ++i) {
      const auto b = Philox4x32(
          {s, 0, i / 3, i % 3},
          {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
      const uint64_t w0 = b[0] | uint64_t{b[1]} << 32;
      const double u = static_cast<double>(w0 >> 11) * 0x1p-53;
      EXPECT_EQ(numbers[i], low + std::floor(u * (high - low)))
          << s << " " << i;
    }
  }
}

TEST(StableHloTest, AnOpWithoutAFormIsNamedWithItsLine) {
  Graph graph;
  const Output x = graph.Input("x", DType::kF32, Shape({2}));
  static const graph::OpDef op{.name = "MyOp",
                               .infer = [](const graph::InferContext& context) {
                                 return std::vector{context.inputs[0]};
                               }};
  const Output y = graph.Add({.op = &op, .inputs = {x}}, kSite);
  EXPECT_THAT(MessageOf<InvalidArgument>([&] { ModuleOf(graph, {y}, {}); }),
              ::testing::StartsWith(
                  "step.cc:7: MyOp 'MyOp' has no form in StableHLO; "
                  "allowed: elementwise ops, AdamUpdate, ArgMax, Assign, "));
}

TEST(StableHloTest, AStepThatTheHostCannotKnowIsNamed) {
  Graph graph;
  const graph::VariableId w =
      graph.AddVariable({.name = "w", .shape = Shape({3})});
  const Output step =
      graph::Cast(graph::ReduceSum(graph.Read(w), {}, CallSite{"model.cc", 3}),
                  DType::kI64);
  const Output noise = graph::RandomNormal({.name = "noise", .step = step},
                                           DType::kF32, Shape({3}), kSite);
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { ModuleOf(graph, {noise}, {}); }),
            "step.cc:7: RandomNormal 'noise' has a step that depends on "
            "ReduceSum 'ReduceSum' (model.cc:3); the host draws random numbers "
            "before the step of a module runs; allowed: counters of one whole "
            "number, inputs, and elementwise ops on them");
}

TEST(StableHloTest, ProductsOfF32AreNotRounded) {
  Graph graph;
  const Output x = graph.Input("x", DType::kF32, Shape({2, 2}));
  EXPECT_THAT(ModuleOf(graph, {graph::MatMul(x, x)}, {}).text,
              HasSubstr("#stablehlo<precision HIGHEST>"));
}

}  // namespace
}  // namespace replicant::exporting
