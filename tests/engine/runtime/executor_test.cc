#include "engine/runtime/executor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/indexing.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/graph/ops/state.h"
#include "engine/kernels/reference/reference_backend.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::runtime {
namespace {

using graph::CallSite;
using graph::Graph;
using graph::Output;
using graph::VariableId;
using testing::GraphRunner;
using testing::MessageOf;
using testing::RandomNormal;
using testing::ToDoubles;
using testing::Values;
using V = std::vector<double>;

constexpr CallSite kSite{"model.cc", 12};

TEST(ExecutorTest, RunsAgainWithNewInputs) {
  GraphRunner runner;
  const Output x = runner.Input("x", Values(DType::kF32, Shape({2}), {1, 2}));
  const auto plan = runner.Compile({.outputs = {graph::Square(x)}});
  plan->Run();
  EXPECT_EQ(ToDoubles(plan->output(0)), (V{1, 4}));
  plan->input("x").Span<float>()[0] = 3.0F;
  plan->Run();
  EXPECT_EQ(ToDoubles(plan->output(0)), (V{9, 4}));
}

TEST(ExecutorTest, AnInputMayHaveNoElements) {
  for (const char* backend : {"reference", "cpu"}) {
    GraphRunner runner(backend);
    Graph& g = runner.graph();
    const Output empty = g.Input("empty", DType::kF32, Shape({0, 3}));
    const auto plan = runner.Compile(
        {.outputs = {empty, graph::Square(empty), graph::ReduceSum(empty)}});
    EXPECT_EQ(plan->input("empty").shape(), Shape({0, 3}));
    EXPECT_TRUE(plan->input("empty").Span<float>().empty());
    plan->Run();
    EXPECT_TRUE(plan->output(0).Span<float>().empty());
    EXPECT_TRUE(plan->output(1).Span<float>().empty());
    EXPECT_EQ(ToDoubles(plan->output(2)), (V{0}));
  }
}

// A table that its owner changes between runs.
class Table : public ResidentInput {
 public:
  Table(kernels::Backend& backend, int64_t rows)
      : type_{DType::kF32, Shape({rows, 2})},
        memory_(backend.Allocate(type_.SizeBytes())) {}
  const graph::TensorType& type() const override { return type_; }
  std::byte* data() override { return memory_->data(); }
  void Update(kernels::Stream& stream) override {
    const auto bytes = std::as_bytes(std::span(row));
    stream.CopyToDevice(data() + bytes.size(), bytes.data(), bytes.size());
  }

  std::vector<float> row = {0.0F, 0.0F};

 private:
  const graph::TensorType type_;
  const std::unique_ptr<kernels::Buffer> memory_;
};

TEST(ExecutorTest, AResidentInputStaysAndIsUpdatedBeforeARun) {
  for (const char* backend : {"reference", "cpu"}) {
    GraphRunner runner(backend);
    Graph& g = runner.graph();
    const Output table = g.Input("table", DType::kF32, Shape({3, 2}));
    const Output rows = g.Input("rows", DType::kI32, Shape({2}));
    Table resident(runner.store().backend(), 3);
    const auto plan =
        runner.Compile({.outputs = {graph::Gather(table, rows), table}},
                       {.residents = {{"table", &resident}}});
    EXPECT_EQ(plan->input_names(), std::vector<std::string>{"rows"});
    std::fill_n(reinterpret_cast<float*>(resident.data()), 6, 5.0F);
    plan->input("rows").Span<int32_t>()[0] = 1;
    for (const float x : {1.0F, 2.0F}) {
      resident.row = {x, -x};
      plan->Run();
      EXPECT_EQ(ToDoubles(plan->output(0)), (V{x, -x, 5, 5}));
      EXPECT_EQ(ToDoubles(plan->output(1)), (V{5, 5, x, -x, 5, 5}));
    }
  }
}

TEST(ExecutorTest, AResidentInputHasTheTypeOfItsInput) {
  GraphRunner runner;
  Graph& g = runner.graph();
  const Output table = g.Input("table", DType::kF32, Shape({3, 2}), kSite);
  Table resident(runner.store().backend(), 4);
  EXPECT_EQ(MessageOf([&] {
              runner.Compile({.outputs = {graph::Square(table)}},
                             {.residents = {{"table", &resident}}});
            }),
            "model.cc:12: input 'table' is f32[3,2], but what is resident for "
            "it is f32[4,2]");
}

TEST(ExecutorTest, AnUpdateIsSeenByTheNextRunAndByOtherPlans) {
  GraphRunner runner;
  Graph& g = runner.graph();
  const VariableId step =
      g.AddVariable({.name = "step", .dtype = DType::kI64, .shape = Shape({})});
  const Output before = g.Read(step);
  const Output after = graph::Assign(g, step, graph::Add(before, 1.0));
  const auto plan =
      runner.Compile({.outputs = {before, after}, .updates = {after}});
  for (int i = 0; i < 3; ++i) {
    plan->Run();
    EXPECT_EQ(ToDoubles(plan->output(0)), (V{static_cast<double>(i)}));
    EXPECT_EQ(ToDoubles(plan->output(1)), (V{i + 1.0}));
  }
  EXPECT_EQ(runner.Eval(before), (V{3}));
}

// The old version is used by a node that was added after the update.
TEST(ExecutorTest, UsersOfTheOldVersionRunBeforeTheUpdate) {
  GraphRunner runner;
  Graph& g = runner.graph();
  const VariableId v = g.AddVariable({.name = "v", .shape = Shape({2})});
  const Output old_value = g.Read(v);
  const Output new_value = graph::Assign(g, v, graph::Add(old_value, 1.0));
  const Output late_use = graph::Mul(graph::Add(old_value, 10.0), 2.0);
  const auto plan =
      runner.Compile({.outputs = {late_use, graph::Mul(new_value, 3.0)}});
  plan->Run();
  EXPECT_EQ(ToDoubles(plan->output(0)), (V{20, 20}));
  EXPECT_EQ(ToDoubles(plan->output(1)), (V{3, 3}));
}

TEST(ExecutorTest, RefusesANodeThatNeedsOldAndNewVersion) {
  GraphRunner runner;
  Graph& g = runner.graph();
  const VariableId v = g.AddVariable({.name = "v", .shape = Shape({2})});
  const Output old_value = g.Read(v);
  const Output new_value =
      graph::Assign(g, v, graph::Add(old_value, 1.0), kSite);
  const Output difference = graph::Sub(new_value, old_value);
  try {
    runner.Compile({.outputs = {difference}});
    FAIL() << "no InvalidArgument";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(),
                 "model.cc:12: Assign 'Assign_v' replaces variable 'v', but a "
                 "node needs both the old and the new value; hint: take "
                 "Identity() of the old value");
  }
}

TEST(ExecutorTest, IdentityKeepsTheOldVersion) {
  GraphRunner runner;
  Graph& g = runner.graph();
  const VariableId v = g.AddVariable({.name = "v", .shape = Shape({2})});
  const Output old_value = graph::Identity(g.Read(v));
  const Output new_value =
      graph::Assign(g, v, graph::Add(g.Read(v), 1.0), kSite);
  EXPECT_EQ(runner.Eval(graph::Sub(new_value, old_value)), (V{1, 1}));
}

// A deep chain of odd sizes, two branches and a gradient: the plan that shares
// memory gives what separate plans of single values give.
TEST(ExecutorTest, SharedMemoryDoesNotChangeResults) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", RandomNormal(DType::kF64, Shape({7, 5}), 1));
  const Output w =
      runner.Input("w", RandomNormal(DType::kF64, Shape({5, 5}), 2));
  std::vector<Output> values;
  Output h = x;
  for (int i = 0; i < 6; ++i) {
    h = graph::Tanh(graph::MatMul(h, w));
    values.push_back(graph::ReduceMean(graph::Mul(h, x)));
  }
  const Output loss = graph::ReduceSum(graph::Square(h));
  values.push_back(graph::Gradients(loss, {w})[0]);
  const auto plan = runner.Compile({.outputs = values});
  plan->Run();
  EXPECT_LT(plan->report().memory.arena_size_bytes,
            plan->report().memory.unshared_size_bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(ToDoubles(plan->output(i)), runner.Eval(values[i]));
  }
}

TEST(ExecutorTest, ARunMakesNoAllocation) {
  GraphRunner runner;
  Graph& g = runner.graph();
  const VariableId w = g.AddVariable({.name = "w", .shape = Shape({4, 4})});
  const Output x =
      runner.Input("x", RandomNormal(DType::kF32, Shape({8, 4}), 1));
  const Output y = graph::Relu(graph::MatMul(x, g.Read(w)));
  const Output loss = graph::ReduceMean(graph::Square(graph::Sub(y, x)));
  const Output dw = graph::Gradients(loss, {g.Read(w)})[0];
  const Output update =
      graph::Assign(g, w, graph::Sub(g.Read(w), graph::Mul(dw, 0.1)));
  const auto plan = runner.Compile({.outputs = {loss}, .updates = {update}});
  plan->Run();
  const testing::AllocationCounts counts = testing::CountAllocations([&] {
    for (int i = 0; i < 10; ++i) plan->Run();
  });
  EXPECT_EQ(counts.own, 0);
}

TEST(ExecutorTest, TheSameSeedGivesTheSameBits) {
  std::vector<V> results;
  for (int round = 0; round < 2; ++round) {
    GraphRunner runner("reference", /*seed=*/5);
    const VariableId w = runner.graph().AddVariable(
        {.name = "w",
         .shape = Shape({3, 3}),
         .initializer = [](RandomStream& random, MutableTensorView view) {
           for (float& x : view.Span<float>()) {
             x = static_cast<float>(random.Normal());
           }
         }});
    const Output x = runner.graph().Read(w);
    results.push_back(runner.Eval(graph::MatMul(x, graph::Tanh(x))));
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(ExecutorTest, DebugModeNamesTheFirstOpThatMadeANan) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", Values(DType::kF32, Shape({3}), {1, -1, 2}));
  const Output bad = graph::Log(x, kSite);
  const Output loss = graph::ReduceSum(graph::Mul(bad, 2.0));
  const auto plan = runner.Compile({.outputs = {loss}}, {.check_finite = true});
  try {
    plan->Run();
    FAIL() << "no NumericError";
  } catch (const NumericError& e) {
    EXPECT_STREQ(
        e.what(),
        "model.cc:12: Log 'Log': element 1 of output 0, f32[3], is not finite; "
        "it is the first op of this run that produced such a value");
  }
}

TEST(ExecutorTest, DebugModeNamesAnInputOrVariableThatIsNotFinite) {
  GraphRunner runner;
  const double nan = std::nan("");
  const Output x = runner.Input("x", Values(DType::kF32, Shape({2}), {1, 2}));
  const VariableId w =
      runner.graph().AddVariable({.name = "w", .shape = Shape({2})});
  const Output y = graph::Mul(x, runner.graph().Read(w));
  const auto plan = runner.Compile({.outputs = {y}}, {.check_finite = true});
  plan->Run();
  plan->input("x").Span<float>()[1] = static_cast<float>(nan);
  EXPECT_EQ(MessageOf([&] { plan->Run(); }),
            "input 'x': element 1 of f32[2] is not finite before the run");
  plan->input("x").Span<float>()[1] = 2.0F;
  runner.store().Set("w", Values(DType::kF32, Shape({2}), {nan, 0}).view());
  EXPECT_EQ(MessageOf([&] { plan->Run(); }),
            "variable 'w': element 0 of f32[2] is not finite before the run");
}

// The reference backend, with a group; notes the traits of a product's inputs.
class NotingBackend : public kernels::ReferenceBackend {
 public:
  class Group : public kernels::ReplicaGroup {};

  std::unique_ptr<kernels::Kernel> CompileKernel(
      const Graph& graph, const graph::Node& node,
      std::span<const kernels::InputTraits> inputs) override {
    if (node.op->name == "MatMul") {
      for (size_t i = 0; i < inputs.size(); ++i) Note(i, inputs[i]);
    }
    return ReferenceBackend::CompileKernel(graph, node, inputs);
  }
  std::unique_ptr<kernels::ReplicaGroup> CreateReplicaGroup() override {
    return std::make_unique<Group>();
  }

  std::vector<std::string> notes;

 private:
  void Note(size_t input, const kernels::InputTraits& traits) {
    if (traits.is_constant_between_runs) {
      notes.push_back(fmt::format("constant {}", input));
    }
    if (traits.group != nullptr) {
      // behind the node's number
      const std::string& name = traits.name_in_group;
      notes.push_back(
          fmt::format("group {} {}", input, name.substr(name.find(' ') + 1)));
    }
  }
};

// The traits of the inputs of x `variable` in a plan that makes one of
// `num_parts` parts of the update of "trained".
std::vector<std::string> TraitsOf(const char* variable, int64_t num_parts) {
  Graph g;
  for (const char* name : {"trained", "fixed"}) {
    g.AddVariable({.name = name, .dtype = DType::kF32, .shape = Shape({4, 4})});
  }
  const VariableId trained = g.FindVariable("trained");
  const Output x = g.Input("x", DType::kF32, Shape({3, 4}));
  const Output y = graph::MatMul(x, g.Read(g.FindVariable(variable)));
  const Output gradient = graph::Square(g.Read(trained));
  const Output whole =
      graph::SgdUpdate({trained}, {}, {gradient}, g.Scalar(0.1, DType::kF32),
                       g.Scalar(1.0, DType::kF32));
  Graph::NodeSpec spec{.op = whole.producer().op,
                       .attributes = whole.producer().attributes,
                       .updates = whole.producer().updates};
  for (const graph::Endpoint& input : whole.producer().inputs) {
    spec.inputs.push_back(g.output(input));
  }
  graph::SetUpdatePart({.index = 0, .count = num_parts}, &spec.attributes);
  const Output update = g.Add(std::move(spec), kSite);
  NotingBackend backend;
  VariableStore store(backend, /*seed=*/1);
  const auto group = backend.CreateReplicaGroup();
  const Executor plan(g, {.outputs = {y}, .updates = {update}}, store,
                      {.replica_group = group.get()});
  return backend.notes;
}

TEST(ExecutorTest, TellsTheBackendWhichInputsStayAndWhichReplicasShare) {
  using Notes = std::vector<std::string>;
  EXPECT_EQ(TraitsOf("trained", /*num_parts=*/2), (Notes{"group 1 trained"}));
  EXPECT_EQ(TraitsOf("trained", /*num_parts=*/1), Notes());
  EXPECT_EQ(TraitsOf("fixed", /*num_parts=*/2), (Notes{"constant 1"}));
}

TEST(ExecutorTest, RefusesAnUnknownInput) {
  GraphRunner runner;
  const Output x = runner.Input("x", Values(DType::kF32, Shape({1}), {1}));
  runner.Input("unused", Values(DType::kF32, Shape({1}), {1}));
  const auto plan = runner.Compile({.outputs = {x}});
  try {
    plan->input("y");
    FAIL() << "no InvalidArgument";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(), "Executor: no input 'y'; inputs: unused, x");
  }
}

TEST(ExecutorTest, RefusesAStoreThatHoldsAnotherShape) {
  GraphRunner runner;
  Graph other;
  other.AddVariable({.name = "w", .shape = Shape({2})});
  runner.store().Declare(other);
  const VariableId w =
      runner.graph().AddVariable({.name = "w", .shape = Shape({3})});
  try {
    runner.Eval(runner.graph().Read(w));
    FAIL() << "no ShapeError";
  } catch (const ShapeError& e) {
    EXPECT_STREQ(e.what(),
                 "VariableStore::Declare: variable 'w' is f32[2], but the "
                 "graph needs f32[3]");
  }
}

}  // namespace
}  // namespace replicant::runtime
