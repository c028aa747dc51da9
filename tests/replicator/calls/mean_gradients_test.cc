// Changes to gradients on their way to the optimizer: sums over batches, and
// fewer bytes on the wire.
#include <gtest/gtest.h>

#include "engine/graph/ops/random.h"
#include "replicator/make_replicator.h"
#include "tests/replicator/replication_cases.h"

namespace replicant::replicator {
namespace {

using testing::MessageOf;

constexpr CallSite kSite{"step.cc", 7};

ReplicationConfig Accumulating(int replicas, int steps) {
  return {.strategy = replicas == 1 ? &Strategy::kSingle : &Strategy::kInGraph,
          .replicas = replicas,
          .backend = "reference",
          .accumulation_steps = steps};
}

// The variables after five updates from 16 rows each, in so many batches.
std::map<std::string, std::vector<double>> TrainInBatches(int replicas,
                                                          int batches) {
  const auto replicator =
      MakeReplicator(Accumulating(replicas, batches), /*seed=*/3);
  EXPECT_EQ(replicator->accumulation_steps(), batches);
  const int64_t rows = 16 / batches;
  const auto value = [=](int64_t step, int64_t row, int64_t column) {
    return RealValue(step / batches, step % batches * rows + row, column);
  };
  const auto input = replicator->MakeInput(Rows(rows, 5 * batches, value));
  const auto step = replicator->Build(*input, NetworkStep);
  while (step->Run(kNoWait) == NextResult::kOk) {
  }
  EXPECT_EQ(replicator->variables().Get("step").Span<int64_t>()[0], 5);
  return VariablesOf<double>(*replicator);
}

TEST(AccumulationTest, SeveralBatchesMakeTheUpdateOfALargerOne) {
  const auto one = TrainInBatches(1, 1);
  for (const int replicas : {1, 2}) {
    for (const int batches : {2, 4}) {
      const auto many = TrainInBatches(replicas, batches);
      for (const auto& [name, value] : one) {
        // of the last batch only
        if (name == "last" || name == "mean") continue;
        EXPECT_LE(NormOfDifference(value, many.at(name)), 1e-12)
            << name << ", " << replicas << " replicas, " << batches
            << " batches";
      }
    }
  }
}

TEST(AccumulationTest, NothingChangesBeforeTheLastBatch) {
  const auto replicator = MakeReplicator(Accumulating(2, 3), /*seed=*/3);
  const auto input = replicator->MakeInput(Rows(4, 6, RealValue));
  const auto step = replicator->Build(*input, NetworkStep);
  std::vector<bool> has_changed;
  std::vector<double> before;
  for (int i = 0; i < 6; ++i) {
    ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
    const HostTensor tensor = replicator->variables().Get("first");
    const auto span = tensor.Span<double>();
    const std::vector<double> now(span.begin(), span.end());
    if (i > 0) has_changed.push_back(now != before);
    before = now;
  }
  EXPECT_EQ(has_changed, (std::vector<bool>{false, true, false, false, true}));
}

TEST(AccumulationTest, AWriteBetweenBatchesLeavesEveryReplicaItsSums) {
  // a written variable makes all replicas' equal, and sums must not be
  const auto train = [](bool is_written) {
    const auto replicator = MakeReplicator(Accumulating(2, 2), /*seed=*/3);
    const auto input = replicator->MakeInput(Rows(8, 2, RealValue));
    const auto step = replicator->Build(*input, NetworkStep);
    EXPECT_EQ(step->Run(kNoWait), NextResult::kOk);
    runtime::VariableStore& variables = replicator->variables();
    if (is_written) variables.Set("mean", variables.Get("mean").view());
    EXPECT_EQ(step->Run(kNoWait), NextResult::kOk);
    return VariablesOf<double>(*replicator);
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(AccumulationTest, RandomNumbersGoByTheRowOfTheUpdate) {
  // the draws of four rows, in the order of the rows
  const auto draw = [](int replicas, int batches) {
    const auto replicator =
        MakeReplicator(Accumulating(replicas, batches), /*seed=*/5);
    const auto input =
        replicator->MakeInput(Rows(4 / batches, batches, WholeValue));
    const auto step = replicator->Build(
        *input, [](ReplicaContext& replica, const Inputs& batch) {
          Graph& g = replica.graph();
          const int64_t rows = batch.at("x").shape()[0];
          const auto range = replica.Rows(rows);
          const Output random =
              graph::RandomUniform({.name = "noise",
                                    .step = g.Scalar(3.0, DType::kI64),
                                    .first_row = range.first_row,
                                    .row_offset = range.row_offset},
                                   DType::kF64, Shape({rows, 2}));
          // for there to be something to add up
          const Output sum =
              replica.MeanGradients({graph::ReduceSum(batch.at("x"))})[0];
          const VariableId total = g.AddVariable({.name = "total",
                                                  .dtype = DType::kF64,
                                                  .shape = Shape({}),
                                                  .is_trainable = false});
          return StepOutputs{.values = {{"value", replica.AllGather(random)}},
                             .updates = {graph::Assign(g, total, sum)}};
        });
    std::vector<double> all;
    for (int i = 0; i < batches; ++i) {
      EXPECT_EQ(step->Run(kNoWait), NextResult::kOk);
      const std::vector<double> values = Values(*step, "value");
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const std::vector<double> one = draw(1, 1);
  EXPECT_EQ(draw(1, 2), one);
  EXPECT_EQ(draw(2, 2), one);
  EXPECT_EQ(draw(1, 4), one);
}

TEST(AccumulationTest, RefusesAStepThatCannotBeAccumulated) {
  const auto build = [](const StepFn& step_fn) {
    const auto replicator = MakeReplicator(Accumulating(1, 2), /*seed=*/1);
    const auto input = replicator->MakeInput(Rows(1, 1, WholeValue));
    return MessageOf<InvalidArgument>(
        [&] { replicator->Build(*input, step_fn); });
  };
  EXPECT_EQ(build([](ReplicaContext& replica, const Inputs& /*batch*/) {
              return StepOutputs{
                  .values = {},
                  .updates = {nn::AddStepCounter(replica.graph()).advance}};
            }),
            "accumulation_steps: the step function has no gradients to add up; "
            "hint: give them to MeanGradients() or WrapOptimizer()");
  EXPECT_EQ(
      build([](ReplicaContext& replica, const Inputs& batch) {
        Graph& g = replica.graph();
        const VariableId count = g.AddVariable({.name = "count",
                                                .dtype = DType::kF64,
                                                .shape = Shape({}),
                                                .is_trainable = false});
        const Output advance =
            graph::Assign(g, count, graph::Add(g.Read(count), 1.0), kSite);
        const Output gradient =
            graph::Mul(graph::ReduceSum(batch.at("x")), advance);
        return StepOutputs{.values = {},
                           .updates = {replica.MeanGradients({gradient})[0]}};
      }),
      "step.cc:7: accumulation_steps: 'count' is updated on the way to a "
      "gradient or a value, which would happen for every batch; hint: take its "
      "value from before the update, or make the update and what follows it "
      "phases of their own (BuildJoint)");
}

// The variables after two updates from three batches each; with `evaluates`,
// beside a step that only looks at them, once before each batch.
std::map<std::string, std::vector<double>> TrainBeside(ReplicationConfig config,
                                                       bool evaluates) {
  config.accumulation_steps = 3;
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto rows = replicator->MakeInput(Rows(4, 100, WholeValue));
  std::unique_ptr<Step> evaluation;
  const auto look = [](ReplicaContext& replica, const Inputs& batch) {
    const nn::StepCounter counter = nn::AddStepCounter(replica.graph(), "step");
    return StepOutputs{
        .values = {{"sum", replica.AllSum(graph::ReduceSum(batch.at("x")))},
                   {"step", counter.value}}};
  };
  if (evaluates) evaluation = replicator->Build(*rows, look);
  const auto input = replicator->MakeInput(Rows(4, 6, RealValue));
  const auto step = replicator->Build(*input, NetworkStep);
  for (int64_t i = 0; i < 6; ++i) {
    if (evaluates) {
      EXPECT_EQ(evaluation->Run(kNoWait), NextResult::kOk);
      double sum = 0.0;
      for (int64_t row = 0; row < 4; ++row) {
        for (int64_t c = 0; c < kColumns; ++c) sum += WholeValue(i, row, c);
      }
      EXPECT_EQ(Values(*evaluation, "sum"), std::vector<double>{sum}) << i;
      // hogwild counts an update when it begins
      if (config.strategy != &Strategy::kHogwild) {
        EXPECT_EQ(evaluation->value("step").Span<int64_t>()[0], i / 3);
      }
    }
    EXPECT_EQ(step->Run(kNoWait), NextResult::kOk);
  }
  return VariablesOf<double>(*replicator);
}

// Would catch an evaluation that is refused, that is made of several batches,
// or that gives the sums, which are in checkpoints, other names.
TEST(AccumulationTest, AStepWithoutUpdatesRunsWholeOnEachBatch) {
  for (const auto& [strategy, replicas] :
       {std::pair{&Strategy::kSingle, 1}, std::pair{&Strategy::kInGraph, 2},
        std::pair{&Strategy::kHogwild, 1}}) {
    SCOPED_TRACE(strategy->name);
    const ReplicationConfig config{
        .strategy = strategy, .replicas = replicas, .backend = "reference"};
    EXPECT_EQ(TrainBeside(config, true), TrainBeside(config, false));
  }
}

// The mean of what two replicas have, as f32.
std::vector<float> MeanOf(DType wire) {
  const auto replicator = MakeReplicator({.strategy = &Strategy::kInGraph,
                                          .replicas = 2,
                                          .backend = "reference",
                                          .gradient_format = wire},
                                         /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(2, 1, RealValue));
  const auto step = replicator->Build(
      *input, [](ReplicaContext& replica, const Inputs& batch) {
        const Output x = graph::Cast(batch.at("x"), DType::kF32);
        return StepOutputs{
            .values = {{"mean", replica.MeanGradients({x})[0]},
                       {"all", replica.AllGather(
                                   replica.MeanGradients({graph::Neg(x)})[0])}},
            .updates = {}};
      });
  EXPECT_EQ(step->Run(kNoWait), NextResult::kOk);
  const auto mean = step->value("mean").Span<float>();
  const auto all = step->value("all").Span<float>();
  for (size_t c = 0; c < mean.size(); ++c) {
    // to the bit, on both replicas
    EXPECT_EQ(all[c], -mean[c]);
    EXPECT_EQ(all[mean.size() + c], -mean[c]);
  }
  return {mean.begin(), mean.end()};
}

TEST(WireTest, Bf16KeepsEightBitsAndF32All) {
  const std::vector<float> exact = MeanOf(DType::kF32);
  const std::vector<float> rounded = MeanOf(DType::kBF16);
  bool differs = false;
  for (size_t c = 0; c < exact.size(); ++c) {
    const auto column = static_cast<int64_t>(c);
    const double first = RealValue(0, 0, column);
    const double second = RealValue(0, 1, column);
    EXPECT_NEAR(exact[c], (first + second) / 2.0, 1e-7);
    // rounded to 8 bits each is off by 2^-8 of itself, and their sum by as much
    const double bound = (std::abs(first) + std::abs(second)) * 0x1p-8;
    EXPECT_NEAR(rounded[c], exact[c], bound);
    differs = differs || rounded[c] != exact[c];
  }
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace replicant::replicator
