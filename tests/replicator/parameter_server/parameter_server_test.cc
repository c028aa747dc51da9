// Strategy parameter_server: workers and servers in threads of one process,
// over ZeroMQ.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/mutex.h"
#include "engine/graph/ops/random.h"
#include "replicator/make_replicator.h"
#include "replicator/parameter_server/parameter_server_replicator.h"
#include "tests/replicator/parameter_server/server_threads.h"
#include "tests/replicator/replication_cases.h"

namespace replicant::replicator {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::MessageOf;

// Servers of a step; what their batches hold does not matter.
std::vector<std::unique_ptr<ServerThread>> StartServers(
    const ReplicationConfig& config, const StepFn& step_fn) {
  return StartServers(config, Rows(16, 0, RealValue), step_fn);
}

std::map<std::string, std::vector<double>> Floats(
    const runtime::VariableStore& store) {
  std::map<std::string, std::vector<double>> variables;
  for (const auto& [name, variable] : store.variables()) {
    if (variable.spec.dtype != DType::kF64) continue;
    const HostTensor value = store.Get(name);
    const auto span = value.Span<double>();
    variables[name] = {span.begin(), span.end()};
  }
  return variables;
}

// --- with one worker it is what `single` is ---

class ParameterServerTest : public ::testing::TestWithParam<int> {};

TEST_P(ParameterServerTest, OneWorkerComputesWhatSingleComputes) {
  const ServerFolder folder;
  const ReplicationConfig config = folder.Config(GetParam(), 1, 0);
  const auto servers = StartServers(config, NetworkStep);
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  EXPECT_EQ(replicator->process_id(), 0);
  const auto input = replicator->MakeInput(Rows(16, 10, RealValue));
  const auto step = replicator->Build(*input, NetworkStep);
  int64_t num_steps = 0;
  while (step->Run(kNoWait) == NextResult::kOk) num_steps += step->num_steps();
  EXPECT_EQ(num_steps, 10);
  EXPECT_EQ(Floats(replicator->variables()),
            TrainNetwork({.backend = "reference"}));
  EXPECT_EQ(replicator->variables().Get("step").Span<int64_t>()[0], 10);
  replicator->Stop();
}

TEST_P(ParameterServerTest, AGroupComputesWhatItsReplicasCompute) {
  const ServerFolder folder;
  ReplicationConfig config = folder.Config(GetParam(), 2, 0);
  config.replicas_per_group = 2;
  const auto servers = StartServers(config, NetworkStep);
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  EXPECT_EQ(replicator->num_replicas(), 2);
  const auto input =
      replicator->MakeInput(Rows(16, 10, RealValue), InputMode::kPerReplica);
  const auto step = replicator->Build(*input, NetworkStep);
  while (step->Run(kNoWait) == NextResult::kOk) {
  }
  EXPECT_EQ(Floats(replicator->variables()),
            TrainNetwork({.strategy = &Strategy::kInGraph,
                          .replicas = 2,
                          .backend = "reference"}));
  replicator->Stop();
}

TEST_P(ParameterServerTest, AVariablePerReplicaStaysItsOwn) {
  const ServerFolder folder;
  ReplicationConfig config = folder.Config(GetParam(), 2, 0);
  config.replicas_per_group = 2;
  const auto servers = StartServers(config, Rows(2, 0, WholeValue), OwnSumStep);
  CheckKeepsVariablesPerReplica(config);
}

INSTANTIATE_TEST_SUITE_P(Servers, ParameterServerTest,
                         ::testing::Values(1, 2, 3));

// --- several workers ---

// Counts on the servers, and has them keep the largest number of steps by
// others between a pull and its push: the staleness, as seen by the variables.
StepOutputs GapStep(ReplicaContext& replica, const Inputs& batch) {
  Graph& g = replica.graph();
  const auto add = [&](const char* name) {
    return g.AddVariable({.name = name,
                          .dtype = DType::kF64,
                          .shape = Shape({}),
                          .is_trainable = false});
  };
  const VariableId count = add("count");
  const VariableId gap = add("gap");
  const Output zero = graph::Mul(graph::ReduceSum(batch.at("x")), 0.0);
  const Output pulled =
      replica.AllReduce(graph::Add(g.Read(count), zero), ReduceOp::kMean);
  const Output now = g.Read(count);
  const Output wider = graph::Assign(
      g, gap, graph::Maximum(g.Read(gap), graph::Sub(now, pulled)));
  const Output counted = graph::Assign(g, count, graph::Add(now, 1.0));
  return {.values = {{"pulled", pulled}}, .updates = {wider, counted}};
}

// GapStep of a worker that takes long over it.
StepOutputs SlowGapStep(ReplicaContext& replica, const Inputs& batch) {
  Graph& g = replica.graph();
  constexpr int64_t kSize = 150;
  const HostTensor ones(DType::kF64, Shape({kSize, 2}));
  Output big = graph::MatMul(g.Constant(ones.view()), batch.at("x"));
  const HostTensor more(DType::kF64, Shape({kColumns, kSize}));
  big = graph::MatMul(big, g.Constant(more.view()));
  for (int i = 0; i < 3; ++i) big = graph::MatMul(big, big);
  StepOutputs outputs = GapStep(replica, Inputs({{"x", graph::Mul(big, 1.0)}}));
  return outputs;
}

TEST(ParameterServersTest, TheStalenessBoundIsNeverExceeded) {
  for (const int64_t staleness : {0, 1, 3}) {
    SCOPED_TRACE(staleness);
    const ServerFolder folder;
    const ReplicationConfig config = folder.Config(2, 3, staleness);
    const auto servers = StartServers(config, GapStep);
    std::atomic<int64_t> num_others{0};
    std::vector<std::thread> others;
    for (int worker = 1; worker < 3; ++worker) {
      others.emplace_back([&, worker] {
        const auto replicator =
            MakeReplicator(config, /*seed=*/3, {.index = worker});
        EXPECT_EQ(replicator->process_id(), worker);
        const auto input =
            replicator->MakeInput([&](const InputContext& context) {
              EXPECT_EQ(context.group_id, worker);
              EXPECT_EQ(context.num_groups, 3);
              EXPECT_EQ(context.num_replicas, 1);
              return std::make_unique<RowsPipeline>(context, 2, 1'000'000,
                                                    WholeValue);
            });
        const auto step = replicator->Build(*input, GapStep);
        while (step->Run(kNoWait) == NextResult::kOk) ++num_others;
      });
    }
    const auto replicator = MakeReplicator(config, /*seed=*/3);
    const auto input = replicator->MakeInput(Rows(2, 1'000'000, WholeValue));
    const auto step = replicator->Build(*input, SlowGapStep);
    int64_t num_steps = 0;
    int64_t num_runs = 0;
    double gap = 0.0;
    // until the others have come in between, too
    const auto give_up = Clock::Real().Now() + 60s;
    const auto is_seen = [&] {
      if (num_runs % 40 != 0) return false;
      gap = Floats(replicator->variables()).at("gap")[0];
      return num_others > 0 && (gap >= 1.0 || staleness == 0);
    };
    while (step->Run(kNoWait) == NextResult::kOk) {
      num_steps += step->num_steps();
      ++num_runs;
      if (is_seen() || Clock::Real().Now() >= give_up) break;
    }
    const double count = Floats(replicator->variables()).at("count")[0];
    EXPECT_LE(gap, static_cast<double>(staleness));
    if (staleness > 0) {
      EXPECT_GE(gap, 1.0);
    }
    EXPECT_GE(count, static_cast<double>(num_steps));
    replicator->Stop();
    for (std::thread& other : others) other.join();
    EXPECT_LE(static_cast<int64_t>(count), num_runs + num_others + 2);
    EXPECT_GT(num_others, 0);
  }
}

TEST(ParameterServersTest, WorkersLearnTogether) {
  const ServerFolder folder;
  const ReplicationConfig config = folder.Config(2, 2, 4);
  const auto servers = StartServers(config, NetworkStep);
  std::thread other([&] {
    const auto replicator = MakeReplicator(config, /*seed=*/3, {.index = 1});
    const auto input = replicator->MakeInput(Rows(16, 1'000'000, RealValue));
    const auto step = replicator->Build(*input, NetworkStep);
    while (step->Run(kNoWait) == NextResult::kOk) {
    }
  });
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(Rows(16, 500, RealValue));
  const auto step = replicator->Build(*input, NetworkStep);
  double first = 0.0;
  double last = 0.0;
  for (int i = 0; step->Run(kNoWait) == NextResult::kOk; ++i) {
    const double loss = Values(*step, "loss")[0];
    if (i < 5) first += loss / 5.0;
    last += 0.05 * (loss - last);
  }
  replicator->Stop();
  other.join();
  EXPECT_LT(last, 0.2 * first);
}

// --- what ends and begins again ---

// Draws for two rows, the same in every step.
StepOutputs NoiseStep(ReplicaContext& replica, const Inputs& batch) {
  Graph& g = replica.graph();
  const nn::StepCounter counter = nn::AddStepCounter(g, "step");
  const int64_t rows = batch.at("x").shape()[0];
  const auto [first_row, row_offset] = replica.Rows(rows);
  const Output noise = graph::RandomNormal({.name = "noise",
                                            .step = g.Scalar(0.0, DType::kI64),
                                            .first_row = first_row,
                                            .row_offset = row_offset},
                                           DType::kF64, Shape({rows, 1}));
  return {.values = {{"noise", replica.AllGather(noise)}},
          .updates = {counter.advance}};
}

TEST(ParameterServersTest, EachGroupDrawsRandomNumbersOfItsOwn) {
  const ServerFolder folder;
  ReplicationConfig config = folder.Config(1, 4, 3);
  config.replicas_per_group = 2;
  const auto servers = StartServers(config, NoiseStep);
  const auto draw = [](Replicator& replicator) {
    const auto input = replicator.MakeInput(Rows(2, 1, WholeValue));
    const auto step = replicator.Build(*input, NoiseStep);
    EXPECT_EQ(step->Run(kNoWait), NextResult::kOk);
    return Values(*step, "noise");
  };
  const auto first = MakeReplicator(config, /*seed=*/3);
  const auto second = MakeReplicator(config, /*seed=*/3, {.index = 1});
  const auto single = MakeReplicator({.backend = "reference"}, /*seed=*/3);
  const std::vector<double> noise = draw(*first);
  EXPECT_EQ(noise, draw(*single));
  const std::vector<double> other = draw(*second);
  for (size_t row = 0; row < 2; ++row) EXPECT_NE(other[row], noise[row]);
  first->Stop();
}

TEST(ParameterServersTest, AWorkerThatIsGoneHoldsNobodyUpOnceItIsBack) {
  const ServerFolder folder;
  const ReplicationConfig config = folder.Config(1, 2, 0);
  const auto servers = StartServers(config, GapStep);
  struct Second {
    std::unique_ptr<Replicator> replicator;
    std::unique_ptr<Input> input;
    std::unique_ptr<Step> step;
  };
  const auto make_second = [&](int64_t bad_step) {
    Second second{.replicator = MakeReplicator(config, 3, {.index = 1})};
    second.input = second.replicator->MakeInput(
        Rows(1, 100, [bad_step](int64_t step, int64_t row, int64_t column) {
          return step == bad_step ? 1e308 : WholeValue(step, row, column);
        }));
    second.step = second.replicator->Build(*second.input, GapStep,
                                           {.check_finite = true});
    return second;
  };
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(Rows(1, 1'000'000, WholeValue));
  const auto step = replicator->Build(*input, GapStep);
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  {
    const Second second = make_second(/*bad_step=*/2);
    ASSERT_EQ(second.step->Run(kNoWait), NextResult::kOk);
    ASSERT_EQ(second.step->Run(kNoWait), NextResult::kOk);
    // ends between its pull and its push
    EXPECT_THROW((void)second.step->Run(kNoWait), runtime::NumericError);
  }
  const Second again = make_second(/*bad_step=*/-1);
  ASSERT_EQ(again.step->Run(kNoWait), NextResult::kOk);
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(Floats(replicator->variables()).at("count")[0], 5.0);
  replicator->Stop();
  EXPECT_EQ(again.step->Run(kNoWait), NextResult::kEnd);
}

TEST(ParameterServersTest, AServerGoesOnFromItsCheckpoint) {
  const ServerFolder folder;
  ReplicationConfig config = folder.Config(1, 1, 0);
  config.server_checkpoint_interval_s = 0.1;
  const auto checkpoints = folder.path() / "checkpoints";
  auto server = std::make_unique<ServerThread>(
      config, 0, Rows(16, 0, RealValue), GapStep, checkpoints);
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(Rows(1, 1'000'000, WholeValue));
  const auto step = replicator->Build(*input, GapStep);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  // saved after the last of these steps
  const auto deadline = Clock::Real().Now() + 60s;
  while (!std::filesystem::exists(checkpoints / "version-10")) {
    ASSERT_LT(Clock::Real().Now(), deadline);
    std::this_thread::sleep_for(5ms);
  }
  server.reset();
  // of a process that has died: no process has the number
  const auto unfinished = checkpoints / "version-11.tmp-4194304-0";
  MakeFolders(unfinished);
  server = std::make_unique<ServerThread>(config, 0, Rows(16, 0, RealValue),
                                          GapStep, checkpoints);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(Floats(replicator->variables()).at("count")[0], 15.0);
  EXPECT_FALSE(std::filesystem::exists(unfinished));
  replicator->Stop();
}

// Would catch a training that stands until the timeout, two minutes here,
// because a server has no variables.
TEST(ParameterServersTest, AServerWithoutCheckpointGetsTheVariablesAgain) {
  const ServerFolder folder;
  const ReplicationConfig config = folder.Config(2, 2, 0);
  auto servers = StartServers(config, GapStep);
  std::atomic<int64_t> num_others{0};
  std::thread other([&] {
    const auto replicator = MakeReplicator(config, /*seed=*/3, {.index = 1});
    const auto input = replicator->MakeInput(Rows(1, 1'000'000, WholeValue));
    const auto step = replicator->Build(*input, GapStep);
    while (step->Run(kNoWait) == NextResult::kOk) ++num_others;
  });
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(Rows(1, 1'000'000, WholeValue));
  const auto step = replicator->Build(*input, GapStep);
  const auto start = Clock::Real().Now();
  for (size_t i = 0; i < 2; ++i) {
    for (int k = 0; k < 10; ++k) ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
    servers[i].reset();
    servers[i] = std::make_unique<ServerThread>(
        config, static_cast<int>(i), Rows(16, 0, RealValue), GapStep);
    const int64_t before = num_others;
    while (num_others < before + 3) {
      ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
    }
  }
  EXPECT_LT(Clock::Real().Now() - start, 100s);
  replicator->Stop();
  other.join();
}

// A worker that dies in a step holds up neither the last checkpoint nor what is
// published; the timeout is two minutes.
TEST(ParameterServersTest, AWorkerThatDiesInAStepIsNotWaitedFor) {
  const ServerFolder folder;
  const ReplicationConfig config = folder.Config(2, 2, 0);
  const auto servers = StartServers(config, GapStep);
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(Rows(1, 100, WholeValue));
  const auto step = replicator->Build(*input, GapStep);
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  {
    const auto second = MakeReplicator(config, 3, {.index = 1});
    const auto bad = second->MakeInput(
        Rows(1, 100, [](int64_t, int64_t, int64_t) { return NAN; }));
    const auto bad_step = second->Build(*bad, GapStep, {.check_finite = true});
    // ends between its pull and its push
    EXPECT_THROW((void)bad_step->Run(kNoWait), runtime::NumericError);
  }
  const auto start = Clock::Real().Now();
  EXPECT_EQ(Floats(replicator->variables()).at("count")[0], 1.0);
  EXPECT_LT(Clock::Real().Now() - start, 100s);
  replicator->Stop();
}

TEST(ParameterServersTest, WhatTheFirstWorkerWritesTheServersTake) {
  const ServerFolder folder;
  const ReplicationConfig config = folder.Config(2, 1, 0);
  const auto servers = StartServers(config, GapStep);
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(Rows(1, 10, WholeValue));
  const auto step = replicator->Build(*input, GapStep);
  HostTensor count(DType::kF64, Shape({}));
  count.mutable_view().Span<double>()[0] = 100.0;
  replicator->variables().Set("count", count.view());
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(Values(*step, "pulled")[0], 100.0);
  count.mutable_view().Span<double>()[0] = 500.0;
  replicator->variables().Set("count", count.view());
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(Values(*step, "pulled")[0], 500.0);
  EXPECT_EQ(Floats(replicator->variables()).at("count")[0], 501.0);
  replicator->Stop();
}

// --- errors ---

TEST(ParameterServersTest, NamesAServerThatDoesNotAnswer) {
  const ServerFolder folder;
  ReplicationConfig config = folder.Config(1, 1, 0);
  config.timeout_s = 0.3;
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(Rows(1, 10, WholeValue));
  const auto step = replicator->Build(*input, GapStep);
  EXPECT_EQ(MessageOf<CommError>([&] { (void)step->Run(kNoWait); }),
            fmt::format("worker 0: parameter server 0 at {} has not answered "
                        "for 0 s, asked to join; hint: `learner --role server "
                        "--index 0` serves there",
                        config.servers[0]));
}

// A server's address, told as a fleet tells it.
class ToldAddress {
 public:
  std::string Find() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    ++num_looks_;
    return address_;
  }
  void Set(const std::string& address) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    address_ = address;
  }
  // Waits until a worker has looked for the server again.
  void AwaitLook() EXCLUDES(mutex_) {
    const int before = num_looks();
    while (num_looks() == before) std::this_thread::sleep_for(1ms);
  }

 private:
  int num_looks() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return num_looks_;
  }
  Mutex mutex_;
  std::string address_ GUARDED_BY(mutex_);
  int num_looks_ GUARDED_BY(mutex_) = 0;
};

// Would catch a worker that asks where a server has been, that takes the time
// without a server for its silence, or a server that does not save at its end.
TEST(ParameterServersTest, WorkersFollowAServerThatMoves) {
  const ServerFolder folder;
  ReplicationConfig config = folder.Config(1, 1, 0);
  config.timeout_s = 2.0;
  config.server_checkpoint_interval_s = 1000.0;
  const auto checkpoints = folder.path() / "checkpoints";
  ToldAddress address;
  const auto serve = [&](const char* name) {
    config.servers = {fmt::format("ipc://{}/{}", folder.path().string(), name)};
    auto server = std::make_unique<ServerThread>(
        config, 0, Rows(16, 0, RealValue), GapStep, checkpoints);
    address.Set(config.servers[0]);
    return server;
  };
  std::atomic<int> num_steps = 0;
  std::atomic<int> num_wanted = 1'000'000;
  double count = 0.0;
  std::thread worker([&, config = config] {
    const auto replicator = MakeReplicator(
        config, /*seed=*/3,
        {.find_server = [&](int /*server*/) { return address.Find(); }});
    const auto input = replicator->MakeInput(Rows(1, 1'000'000, WholeValue));
    const auto step = replicator->Build(*input, GapStep);
    while (num_steps < num_wanted && step->Run(kNoWait) == NextResult::kOk) {
      ++num_steps;
    }
    count = Floats(replicator->variables()).at("count")[0];
    replicator->Stop();
  });
  // twice a second, so for longer than the timeout
  for (int i = 0; i < 6; ++i) address.AwaitLook();
  auto server = serve("first");
  while (num_steps < 10) std::this_thread::sleep_for(1ms);
  server.reset();
  address.Set("");
  EXPECT_TRUE(std::filesystem::exists(checkpoints));
  num_wanted = num_steps + 10;
  server = serve("second");
  worker.join();
  EXPECT_EQ(num_steps, num_wanted);
  // the server's end loses a step that was under way
  EXPECT_GE(count, num_wanted - 1);
}

// The timeout is two minutes.
TEST(ParameterServersTest, AWorkerThatEndsWaitsForNoServer) {
  const ServerFolder folder;
  const ReplicationConfig config = folder.Config(2, 2, 0);
  auto servers = StartServers(config, GapStep);
  const auto start = Clock::Real().Now();
  std::atomic<bool> is_stopped = false;
  {
    const auto replicator = MakeReplicator(
        config, /*seed=*/3, {.should_stop = [&] { return is_stopped.load(); }});
    const auto input = replicator->MakeInput(Rows(1, 1'000'000, WholeValue));
    const auto step = replicator->Build(*input, GapStep);
    EXPECT_EQ(step->Run(kNoWait), NextResult::kOk);
    // a server that answers is no reason to give up
    is_stopped = true;
    EXPECT_EQ(step->Run(kNoWait), NextResult::kOk);
    servers[1].reset();
    EXPECT_EQ(step->Run(kNoWait), NextResult::kTimeout);
    EXPECT_EQ(step->Run(kNoWait), NextResult::kTimeout);
    EXPECT_THAT(MessageOf<CommError>([&] { replicator->variables(); }),
                HasSubstr("worker 0: parameter server 1 at ipc://"));
    replicator->Stop();
    // what it has, for those that it publishes them to
    EXPECT_EQ(Floats(replicator->variables()).size(), 2u);
  }
  servers.clear();
  // one that has never joined
  const auto late = MakeReplicator(
      config, /*seed=*/3, {.index = 1, .should_stop = [] { return true; }});
  const auto input = late->MakeInput(Rows(1, 10, WholeValue));
  const auto step = late->Build(*input, GapStep);
  EXPECT_EQ(step->Run(kNoWait), NextResult::kTimeout);
  late->Stop();
  EXPECT_LT(Clock::Real().Now() - start, 60s);
}

TEST(ParameterServersTest, RefusesAWorkerThatTrainsSomethingElse) {
  const ServerFolder folder;
  const ReplicationConfig config = folder.Config(1, 1, 0);
  const auto servers = StartServers(config, GapStep);
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(Rows(1, 10, WholeValue));
  const auto step = replicator->Build(*input, NetworkStep);
  EXPECT_THAT(MessageOf<CommError>([&] { (void)step->Run(kNoWait); }),
              HasSubstr("refuses to join: worker 0 builds other steps than "
                        "this server: "));
}

TEST(ParameterServersTest, RefusesAStepThatNeedsItsOwnUpdate) {
  const ServerFolder folder;
  const ReplicationConfig config = folder.Config(1, 1, 0);
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(Rows(1, 10, WholeValue));
  constexpr CallSite kSite{"step.cc", 7};
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] {
        replicator->Build(*input, [&](ReplicaContext& replica,
                                      const Inputs& batch) {
          Graph& g = replica.graph();
          const VariableId w = g.AddVariable(
              {.name = "w", .dtype = DType::kF64, .shape = Shape({1, 3})});
          const Output newest = graph::Assign(
              g, w, graph::Sub(g.Read(w), replica.AllSum(batch.at("x")), kSite),
              kSite);
          return StepOutputs{.values = {{"w", graph::Mul(newest, 2.0, kSite)}},
                             .updates = {newest}};
        });
      }),
      "step.cc:7: Affine 'Affine' combines what the replicas reduced with "
      "variables, which servers do after the step; no value of the step and no "
      "gradient can be made of it; hint: make what follows an update a phase "
      "of "
      "its own (BuildJoint)");
}

// Would catch an evaluation that counts as a step, or that stands until another
// worker has pushed.
TEST(ParameterServersTest, AStepWithoutUpdatesPushesNothing) {
  const ServerFolder folder;
  // one worker at a time between pull and push
  ReplicationConfig config = folder.Config(2, 2, /*staleness=*/0);
  config.accumulation_steps = 2;
  const auto look = [](ReplicaContext& replica, const Inputs& batch) {
    const nn::StepCounter counter = nn::AddStepCounter(replica.graph(), "step");
    return StepOutputs{
        .values = {{"sum", replica.AllSum(graph::ReduceSum(batch.at("x")))},
                   {"step", counter.value}}};
  };
  const auto serve = [&](const Thread::StopToken& stop, int server) {
    const auto replicator =
        MakeReplicator(config, 3, {.is_server = true, .index = server});
    const auto input = replicator->MakeInput(Rows(16, 0, RealValue));
    const auto step = replicator->Build(*input, NetworkStep);
    const auto evaluation = replicator->Build(*input, look);
    while (!stop.IsStopRequested() &&
           step->Run(Clock::Real().Now() + 20ms) != NextResult::kEnd) {
    }
  };
  Thread first("first", [&](const Thread::StopToken& s) { serve(s, 0); });
  Thread second("second", [&](const Thread::StopToken& s) { serve(s, 1); });
  struct Worker {
    std::unique_ptr<Replicator> replicator;
    std::unique_ptr<Input> rows, input;
    std::unique_ptr<Step> step, evaluation;
  };
  std::vector<Worker> workers;
  for (int index = 0; index < 2; ++index) {
    Worker worker{.replicator = MakeReplicator(config, 3, {.index = index})};
    worker.input = worker.replicator->MakeInput(Rows(16, 100, RealValue));
    worker.rows = worker.replicator->MakeInput(Rows(16, 100, RealValue));
    worker.step = worker.replicator->Build(*worker.input, NetworkStep);
    worker.evaluation = worker.replicator->Build(*worker.rows, look);
    workers.push_back(std::move(worker));
  }
  for (int64_t i = 0; i < 6; ++i) {
    ASSERT_EQ(workers[0].step->Run(kNoWait), NextResult::kOk);
    EXPECT_EQ(workers[0].step->num_steps(), 1);
    // in the midst of an update of two batches, too
    for (Worker& worker : workers) {
      ASSERT_EQ(worker.evaluation->Run(kNoWait), NextResult::kOk);
      EXPECT_EQ(worker.evaluation->value("step").Span<int64_t>()[0],
                (i + 1) / 2);
    }
  }
  workers[0].replicator->Stop();
}

TEST(ParameterServersTest, RefusesPlacesThatThereAreNot) {
  const ServerFolder folder;
  const ReplicationConfig config = folder.Config(1, 2, 0);
  EXPECT_EQ(
      MessageOf<ConfigError>([&] { MakeReplicator(config, 3, {.index = 2}); }),
      "replication: no worker 2 among 2 replicas in groups of 1; "
      "allowed: 0 to 1");
  EXPECT_EQ(MessageOf<ConfigError>([&] {
              MakeReplicator(config, 3, {.is_server = true, .index = 1});
            }),
            "replication.servers: no server 1; allowed: 0 to "
            "0");
  EXPECT_EQ(MessageOf<ConfigError>([&] {
              MakeReplicator({.backend = "reference"}, 3, {.is_server = true});
            }),
            "replication.strategy: servers are for parameter_server, further "
            "workers for parameter_server and for between_graph with "
            "communicator tcp");
}

}  // namespace
}  // namespace replicant::replicator
