// Steps of several replicas as modules on XLA's CPU devices, against our own
// replicas in one process: primitives, agreement, random numbers, accumulation.
#include "replicator/steps/stablehlo_step.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/graph/ops/random.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/graph/ops/state.h"
#include "engine/nn/optimizers.h"
#include "replicator/inspect/stablehlo_replicator.h"
#include "replicator/make_replicator.h"
#include "tests/replicator/joint_cases.h"
#include "tests/replicator/replication_cases.h"
#include "tests/support/message_of.h"
#include "tests/support/module_run.h"
#include "tests/support/tensor_values.h"

namespace replicant::replicator {
namespace {

using testing::MessageOf;
using testing::NamedTensors;
using testing::XlaResult;
using testing::XlaRun;

constexpr int64_t kGlobalRows = 8;
constexpr int64_t kSteps = 3;
constexpr uint64_t kSeed = 3;

// A step with every primitive, all kinds of variables, and random numbers.
StepOutputs EveryPrimitive(ReplicaContext& replica, const Inputs& batch) {
  graph::Graph& graph = replica.graph();
  const Output x = batch.at("x");  // [rows, 3]
  const int64_t rows = x.shape()[0];
  const nn::StepCounter counter = nn::AddStepCounter(graph);
  const ReplicaContext::RowRange range = replica.Rows(rows);
  const Output noise = graph::RandomUniform({.name = "noise",
                                             .step = counter.value,
                                             .first_row = range.first_row,
                                             .row_offset = range.row_offset},
                                            DType::kF64, x.shape());
  const Output y = graph::Add(x, noise);
  const auto variable = [&](const char* name, graph::ReplicaAgreement agreement,
                            bool is_trainable) {
    return graph.AddVariable({.name = name,
                              .dtype = DType::kF64,
                              .shape = Shape({kColumns}),
                              .is_trainable = is_trainable,
                              .agreement = agreement});
  };
  const VariableId w =
      variable("w", graph::ReplicaAgreement::kMean, /*is_trainable=*/true);
  StepOutputs step;
  step.updates.push_back(counter.advance);
  const Output sum = graph::ReduceSum(y, {.axes = {0}});
  const auto sgd =
      replica.WrapOptimizer([&](const auto& variables, const auto& gradients) {
        return graph::SgdUpdate(variables, {}, gradients,
                                graph.Scalar(0.5, DType::kF64),
                                graph.Scalar(1.0, DType::kF64));
      });
  step.updates.push_back(sgd({w}, {sum}));
  const std::vector<std::pair<const char*, graph::ReplicaAgreement>> own = {
      {"mean", graph::ReplicaAgreement::kMean},
      {"first", graph::ReplicaAgreement::kFirst},
      {"private", graph::ReplicaAgreement::kPerReplica}};
  for (const auto& [name, agreement] : own) {
    const VariableId v = variable(name, agreement, /*is_trainable=*/false);
    step.updates.push_back(
        graph::Assign(graph, v, graph::Add(graph.Read(v), sum)));
  }
  // rows for every replica: [R * rows, 3]
  std::vector<Output> parts;
  parts.reserve(static_cast<size_t>(replica.num_replicas()));
  for (int r = 0; r < replica.num_replicas(); ++r) {
    parts.push_back(graph::Mul(y, r + 1.0));
  }
  const Output scattered =
      replica.ReduceScatter(graph::Concat(parts, 0), ReduceOp::kMean);
  step.values = {
      {"sum", replica.AllSum(y)},
      {"mean", replica.AllReduce(y, ReduceOp::kMean)},
      {"min", replica.AllMin(y)},
      {"max", replica.AllMax(y)},
      {"prod", replica.AllReduce(y, ReduceOp::kProd)},
      {"gathered", replica.AllGather(y)},
      {"scattered", replica.AllGather(scattered)},
      {"broadcast", replica.Broadcast(y, replica.num_replicas() - 1)}};
  return step;
}

ReplicationConfig InGraph(int replicas, int accumulation_steps = 1) {
  return {.strategy = &Strategy::kInGraph,
          .replicas = replicas,
          .backend = "reference",
          .accumulation_steps = accumulation_steps};
}

const std::vector<std::string> kValues = {
    "sum", "mean", "min", "max", "prod", "gathered", "scattered", "broadcast"};

// The results of a training.
struct Trained {
  // By step.
  std::vector<NamedTensors> values;
  NamedTensors variables;
};

Trained TrainOurs(const ReplicationConfig& config) {
  const auto replicator = MakeReplicator(config, kSeed);
  const auto input =
      replicator->MakeInput(Rows(kGlobalRows, kSteps, WholeValue));
  const auto step = replicator->Build(*input, &EveryPrimitive);
  Trained trained;
  for (int64_t s = 0; s < kSteps; ++s) {
    EXPECT_EQ(step->Run(kNoWait), NextResult::kOk);
    NamedTensors& values = trained.values.emplace_back();
    for (const std::string& name : kValues) {
      values.emplace(name, HostTensor::Clone(step->value(name)));
    }
  }
  trained.variables = testing::ValuesOf(replicator->variables());
  return trained;
}

// The batch of all replicas, and what a host says to an accumulating module.
NamedTensors InputsOf(int64_t step, int64_t accumulation_steps,
                      int64_t rows = kGlobalRows,
                      const ValueFn& value = WholeValue) {
  HostTensor x(DType::kF64, Shape({rows, kColumns}));
  for (int64_t i = 0; i < rows * kColumns; ++i) {
    x.MutableSpan<double>()[static_cast<size_t>(i)] =
        value(step, i / kColumns, i % kColumns);
  }
  HostTensor is_first(DType::kBool, Shape({}));
  is_first.MutableSpan<bool>()[0] = step % accumulation_steps == 0;
  HostTensor number(DType::kI64, Shape({}));
  number.MutableSpan<int64_t>()[0] = step % accumulation_steps;
  NamedTensors inputs;
  inputs.emplace("x", std::move(x));
  inputs.emplace(AccumulationInputs::kIsFirst, std::move(is_first));
  inputs.emplace(AccumulationInputs::kNumber, std::move(number));
  return inputs;
}

// The same training as modules, on its way to XLA.
struct ModuleTraining {
  explicit ModuleTraining(const ReplicationConfig& config)
      : replicator(config, kSeed) {
    const auto input =
        replicator.MakeInput(Rows(kGlobalRows, kSteps, WholeValue));
    const auto step = replicator.Build(*input, &EveryPrimitive, {});
    run = std::make_unique<testing::ModuleRun>(
        fmt::format("{}_{}", config.replicas, config.accumulation_steps),
        replicator.steps(), testing::ValuesOf(replicator.variables()));
    for (int64_t s = 0; s < kSteps; ++s) {
      const bool is_last = (s + 1) % config.accumulation_steps == 0;
      run->AddStep(is_last ? replicator.steps().size() - 1 : 0,
                   InputsOf(s, config.accumulation_steps));
    }
  }

  StableHloReplicator replicator;
  std::unique_ptr<testing::ModuleRun> run;
};

void ExpectNear(const HostTensor& got, TensorView want,
                const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  const std::vector<double> a = testing::ToDoubles(got.view());
  const std::vector<double> b = testing::ToDoubles(want);
  for (size_t i = 0; i < a.size(); ++i) {
    // products and sums of f64
    EXPECT_NEAR(a[i], b[i], 1e-13 * std::max(1.0, std::abs(b[i])))
        << what << " " << i;
  }
}

TEST(StableHloStepTest, StepsAreThoseOfOurReplicas) {
  std::vector<ReplicationConfig> configs = {
      InGraph(1), InGraph(2), InGraph(4), InGraph(8),
      InGraph(2, /*accumulation_steps=*/2)};
  std::vector<std::unique_ptr<ModuleTraining>> trainings;
  std::vector<XlaRun> runs;
  for (const ReplicationConfig& config : configs) {
    trainings.push_back(std::make_unique<ModuleTraining>(config));
    runs.push_back(std::move(trainings.back()->run->run()));
  }
  const std::vector<XlaResult> results = testing::RunXla(runs);
  for (size_t i = 0; i < configs.size(); ++i) {
    SCOPED_TRACE(runs[i].name);
    const Trained ours = TrainOurs(configs[i]);
    for (size_t s = 0; s < ours.values.size(); ++s) {
      for (const auto& [name, want] : ours.values[s]) {
        ExpectNear(HostTensor::Clone(results[i].outputs[s].at(name).view()[0]),
                   want.view(), fmt::format("step {} {}", s, name));
      }
    }
    for (const auto& [name, want] : ours.variables) {
      ExpectNear(HostTensor::Clone(results[i].variables.at(name).view()[0]),
                 want.view(), name);
    }
  }
}

// A host runs the modules of a joint step as StepPhases does: the first part
// as a batch arrives, the second on all batches after the last.
TEST(StableHloStepTest, ModulesOfAJointStepTrainBothNetworks) {
  constexpr int64_t kBatches = 2;  // of an update
  constexpr int64_t kRows = kGanRows / kBatches;
  StableHloReplicator replicator(InGraph(2, kBatches), kSeed);
  const auto input = replicator.MakeInput(GanRows(kBatches, kGanUpdates));
  const auto step = replicator.BuildJoint(
      *input, {DiscriminatorPhase, GeneratorPhase}, {.name = "gan"});
  std::vector<std::string> names;
  for (const StableHloStep& module : replicator.steps()) {
    names.push_back(module.name);
  }
  ASSERT_EQ(names, (std::vector<std::string>{"gan_0_earlier", "gan_0",
                                             "gan_1_earlier", "gan_1"}));

  testing::ModuleRun run("joint", replicator.steps(),
                         testing::ValuesOf(replicator.variables()));
  const ValueFn value = [](int64_t batch, int64_t row, int64_t column) {
    return RealValue(batch / kBatches, batch % kBatches * kRows + row, column);
  };
  for (int64_t update = 0; update < kGanUpdates; ++update) {
    for (size_t module = 0; module < names.size(); ++module) {
      const int64_t batch =
          update * kBatches + static_cast<int64_t>(module) % kBatches;
      run.AddStep(module, InputsOf(batch, kBatches, kRows, value));
    }
  }
  std::vector<XlaRun> runs;
  runs.push_back(std::move(run.run()));
  const std::vector<XlaResult> results = testing::RunXla(runs);
  for (const auto& [name, want] : TrainGan({.backend = "reference"})) {
    if (name.ends_with("_loss")) continue;
    const HostTensor got =
        HostTensor::Clone(results[0].variables.at(name).view()[0]);
    // rounding grows through six updates
    EXPECT_LE(NormOfDifference(testing::ToDoubles(got.view()), want), 1e-9)
        << name;
  }
}

TEST(StableHloStepTest, ReplicasThatComputeDifferentlyHaveNoModule) {
  const auto step = [](ReplicaContext& replica, const Inputs& batch) {
    return StepOutputs{
        .values = {{"x", graph::Mul(batch.at("x"), replica.replica_id())}}};
  };
  const std::string message = MessageOf<InvalidArgument>([&] {
    BuildStableHloStep({{"x", DType::kF32, Shape({2})}}, step,
                       {.num_replicas = 2});
  });
  EXPECT_TRUE(message.starts_with(
      "replicas 0 and 1 compute differently, and a module is for all: '"))
      << message;
  EXPECT_TRUE(message.ends_with(
      "hint: a step may depend on its replica through the batch, random "
      "numbers and primitives only"))
      << message;
}

// Whatever a single replica computes is what all compute.
TEST(StableHloStepTest, OneReplicaMayTrainByItsOwnGradient) {
  const auto step = [](ReplicaContext& replica, const Inputs& batch) {
    graph::Graph& g = replica.graph();
    const VariableId w =
        g.AddVariable({.name = "w", .dtype = DType::kF32, .shape = Shape({2})});
    return StepOutputs{
        .updates = {graph::Assign(g, w, graph::Add(g.Read(w), batch.at("x")))}};
  };
  const std::vector<InputSpec> specs = {{"x", DType::kF32, Shape({2})}};
  EXPECT_EQ(BuildStableHloStep(specs, step, {}).variables.size(), 1U);
  EXPECT_TRUE(MessageOf<InvalidArgument>([&] {
                BuildStableHloStep(specs, step, {.num_replicas = 2});
              }).find("'w' is trained, but every replica would update it") !=
              std::string::npos);
}

TEST(StableHloStepTest, ReplicasThatDoNotWaitHaveNoModule) {
  EXPECT_EQ(
      MessageOf<ConfigError>([] {
        StableHloReplicator({.strategy = &Strategy::kHogwild, .replicas = 2},
                            kSeed);
      }),
      "replication.strategy: hogwild has no module: its replicas do not make "
      "their steps together; allowed here: single, in_graph, between_graph");
  EXPECT_EQ(MessageOf<ConfigError>([] {
              StableHloReplicator(
                  {.strategy = &Strategy::kInGraph, .logical_devices = 2},
                  kSeed);
            }),
            "replication.logical_devices: got 2; a module is for one device of "
            "each replica: allowed here: 1");
}

}  // namespace
}  // namespace replicant::replicator
