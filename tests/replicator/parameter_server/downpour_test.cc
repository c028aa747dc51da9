// Downpour's intervals under parameter_server (Dean et al. 2012, algorithm
// 7.1): fetch_interval is its n_fetch, push_interval its n_push.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "replicator/make_replicator.h"
#include "tests/replicator/parameter_server/server_threads.h"
#include "tests/replicator/replication_cases.h"

namespace replicant::replicator {
namespace {

using testing::MessageOf;
using ::testing::StartsWith;

// Learns the sum of the columns by plain SGD with a rate of `rate`.
StepFn LinearStep(double rate) {
  return [rate](ReplicaContext& replica, const Inputs& batch) {
    Graph& g = replica.graph();
    const VariableId w = g.AddVariable(
        {.name = "w",
         .dtype = DType::kF64,
         .shape = Shape({kColumns, 1}),
         .initializer = [](RandomStream& random, MutableTensorView value) {
           for (double& v : value.Span<double>()) v = random.Normal();
         }});
    const Output x = batch.at("x");
    const Output error =
        graph::Sub(graph::MatMul(x, g.Read(w)),
                   graph::ReduceSum(x, {.axes = {1}, .keep_dims = true}));
    const Output loss = graph::ReduceMean(graph::Square(error));
    const Optimizer sgd =
        replica.WrapOptimizer([&](const std::vector<VariableId>& variables,
                                  const std::vector<Output>& gradients) {
          return nn::Sgd(replica, "sgd", variables, gradients,
                         g.Scalar(rate, DType::kF64));
        });
    return StepOutputs{
        .values = {{"loss", replica.AllReduce(loss, ReduceOp::kMean)}},
        .updates = {sgd({w}, graph::Gradients(loss, {g.Read(w)}))}};
  };
}

constexpr int64_t kSteps = 12;

std::vector<double> Train(const ReplicationConfig& config, double rate) {
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(Rows(8, kSteps, RealValue));
  const auto step = replicator->Build(*input, LinearStep(rate));
  int64_t num_steps = 0;
  while (step->Run(kNoWait) == NextResult::kOk) num_steps += step->num_steps();
  EXPECT_EQ(num_steps, kSteps);
  const std::vector<double> w = VariablesOf<double>(*replicator).at("w");
  replicator->Stop();
  return w;
}

std::vector<double> TrainWithServers(int fetch_interval, int push_interval,
                                     int replicas = 1) {
  const ServerFolder folder;
  ReplicationConfig config = folder.Config(2, replicas, /*staleness=*/0);
  config.replicas_per_group = replicas;
  config.fetch_interval = fetch_interval;
  config.push_interval = push_interval;
  const auto servers =
      StartServers(config, Rows(8, 0, RealValue), LinearStep(0.1));
  return Train(config, 0.1);
}

// A worker that fetches no sooner than it pushes continues from its own
// updates, so that, alone and with plain SGD, it learns the same as one
// replica. Would catch a worker that makes no own updates, or loses gradients.
TEST(DownpourTest, AloneItIsPlainSgd) {
  const std::vector<double> one = Train({.backend = "reference"}, 0.1);
  for (const auto& [fetch, push] :
       {std::pair(1, 1), {3, 3}, {12, 4}, {4, 1}, {12, 12}}) {
    EXPECT_LE(NormOfDifference(TrainWithServers(fetch, push), one), 1e-12)
        << fetch << ", " << push;
    EXPECT_LE(NormOfDifference(TrainWithServers(fetch, push, 2), one), 1e-9)
        << fetch << ", " << push;
  }
}

// A worker that fetches in every step computes all gradients of a push at what
// the servers hold: those of one batch, with as many times the rate.
TEST(DownpourTest, FetchingReplacesWhatTheWorkerHasUpdated) {
  ReplicationConfig accumulating{.backend = "reference"};
  accumulating.accumulation_steps = 3;
  EXPECT_LE(
      NormOfDifference(TrainWithServers(1, 3), Train(accumulating, 3 * 0.1)),
      1e-12);
}

TEST(DownpourTest, WorkersLearnTogetherWithinTheBound) {
  const ServerFolder folder;
  ReplicationConfig config = folder.Config(2, 3, /*staleness=*/3);
  config.fetch_interval = 4;
  config.push_interval = 2;
  const StepFn step_fn = LinearStep(0.02);
  const auto servers = StartServers(config, Rows(8, 0, RealValue), step_fn);
  std::vector<std::jthread> others;
  for (int worker = 1; worker < 3; ++worker) {
    others.emplace_back([&, worker] {
      const auto replicator =
          MakeReplicator(config, /*seed=*/3, {.index = worker});
      const auto input = replicator->MakeInput(Rows(8, 1'000'000, RealValue));
      const auto step = replicator->Build(*input, step_fn);
      while (step->Run(kNoWait) == NextResult::kOk) {
      }
    });
  }
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(Rows(8, 400, RealValue));
  const auto step = replicator->Build(*input, step_fn);
  double first = -1.0;
  double last = 0.0;
  while (step->Run(kNoWait) == NextResult::kOk) {
    last = Values(*step, "loss")[0];
    if (first < 0.0) first = last;
  }
  EXPECT_LT(last, 0.02 * first);
  replicator->Stop();
}

// The factor by which a clipped gradient is scaled belongs to one update.
TEST(DownpourTest, RefusesPushesThatHaveNoSum) {
  const ServerFolder folder;
  ReplicationConfig config = folder.Config(1, 1, 0);
  config.push_interval = 2;
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(Rows(16, 1, RealValue));
  EXPECT_THAT(
      MessageOf<InvalidArgument>(
          [&] { (void)replicator->Build(*input, NetworkStep); }),
      StartsWith("push_interval: 'last' is pushed whole, and has no sum over "
                 "updates; allowed for this step: 1"));
  EXPECT_THAT(
      MessageOf<InvalidArgument>([&] {
        (void)replicator->Build(*input, [](ReplicaContext& replica,
                                           const Inputs& batch) {
          Graph& g = replica.graph();
          const VariableId w = g.AddVariable({.name = "w",
                                              .dtype = DType::kF64,
                                              .shape = Shape({kColumns, 1})});
          const Output loss = graph::ReduceMean(
              graph::Square(graph::MatMul(batch.at("x"), g.Read(w))));
          const auto gradients =
              replica.MeanGradients(graph::Gradients(loss, {g.Read(w)}));
          return StepOutputs{.values = {},
                             .updates = {nn::Sgd(replica, "sgd", {w}, gradients,
                                                 g.Scalar(0.1, DType::kF64), {},
                                                 {.max_global_norm = 1.0})}};
        });
      }),
      ::testing::HasSubstr(
          "is not a mean of gradients, and its sum over updates has no meaning "
          "(the norm of a clipped update, say)"));
}

}  // namespace
}  // namespace replicant::replicator
