// A learner and a replay service, stopped and made anew from a checkpoint of
// the run: everything that counts is what it was.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>

#include "base/fs.h"
#include "learner/learner.h"
#include "learner/workloads/agent/agent_workload.h"
#include "replay/client/batch_reader.h"
#include "tests/learner/workloads/d4pg_options.h"
#include "tests/replay/running_service.h"

namespace replicant::learner {
namespace {

using replay::InsertResult;
using replay::testing::RunningService;

constexpr replay::StepShape kShape = {.observation_bytes = 2 * sizeof(float),
                                      .action_bytes = sizeof(float)};

std::span<const std::byte> Row(std::span<const float> values) {
  return std::as_bytes(values);
}

// An episode of 40 random steps.
std::vector<std::byte> Episode(uint64_t number) {
  RandomStream random(number, "episode");
  replay::ChunkBuilder builder(kShape, number, 0);
  const auto uniform = [&] {
    return static_cast<float>(random.Uniform(-1.0, 1.0));
  };
  std::array<float, 2> observation = {};
  for (int t = 0; t < 40; ++t) {
    observation = {uniform(), uniform()};
    const std::array<float, 1> action = {uniform()};
    builder.AddStep(Row(observation), Row(action), uniform(), 1.0F);
  }
  builder.AddLastObservation(Row(observation));
  return builder.Finish({});
}

D4pgOptions Options() {
  D4pgOptions options;
  options.agent.networks.policy_hidden_sizes = {8};
  options.agent.networks.critic_hidden_sizes = {8};
  options.agent.distribution.num_atoms = 11;
  // a resumed run goes on from their statistics
  options.agent.distribution.range = agents::d4pg::Range::kRunning;
  options.agent.observations.normalize = agents::Normalization::kRunning;
  options.spec.task = {.observation = Shape({2}),
                       .action_minimum = {-1.0},
                       .action_maximum = {1.0}};
  options.spec.discount = 0.9;
  options.learner.batch_size = 16;
  options.learner.replication.backend = "reference";
  options.spec.task.action_repeat = 4;
  return options;
}

// Replay, and learner on it, of one run.
class Roles {
 public:
  // The episodes are there before the learner's reader, which draws at once:
  // what it draws stays.
  Roles(const std::filesystem::path& folder, const LearnerConfig& config,
        uint64_t num_episodes = 0)
      : checkpoints_(folder / "checkpoints", 2),
        service_(MakeService(folder / "replay", num_episodes)),
        transitions_({.endpoints = {service_->endpoint()},
                      .shape = kShape,
                      .batch_size = Options().learner.batch_size,
                      .prefetch = 3}),
        workload_(MakeWorkload(Options(), &transitions_)),
        learner_(config, folder, &workload_) {}

  static replay::ShardConfig ShardOf() {
    replay::ShardConfig config;
    config.shape = kShape;
    config.seed = 5;
    config.tables = {{.max_size = 300,
                      .sampler = replay::SelectorKind::kPrioritized,
                      .n_step = {.n_step = 2, .discount = 0.9},
                      .rate_limiter = {.samples_per_insert = 16.0,
                                       .min_size_to_sample = 30,
                                       .error_buffer = 100'000.0}}};
    return config;
  }

  replay::Shard& shard() { return service_->shard(); }
  AgentWorkload& workload() { return workload_; }
  Learner& learner() { return learner_; }
  CheckpointFolder& checkpoints() { return checkpoints_; }

 private:
  std::unique_ptr<RunningService> MakeService(
      const std::filesystem::path& folder, uint64_t num_episodes) const {
    const auto manifest = checkpoints_.NewestManifest();
    auto service = std::make_unique<RunningService>(
        ShardOf(), replicant::testing::OwnAddress(),
        RunningService::FastTicks(), replay::ServiceOptions{},
        replay::CheckpointOptions{.folder = folder,
                                  .restore_id = manifest ? manifest->id : 0});
    for (uint64_t k = 1; k <= num_episodes; ++k) {
      EXPECT_EQ(service->shard().TryInsert(3, k, Episode(k)),
                InsertResult::kInserted);
    }
    return service;
  }

  CheckpointFolder checkpoints_;
  std::unique_ptr<RunningService> service_;
  replay::BatchReader transitions_;
  AgentWorkload workload_;
  Learner learner_;
};

void ExpectSameVariables(runtime::VariableStore& a, runtime::VariableStore& b) {
  ASSERT_EQ(a.variables().size(), b.variables().size());
  int num_slots = 0;
  for (const auto& [name, variable] : a.variables()) {
    const HostTensor x = a.Get(name), y = b.Get(name);
    ASSERT_EQ(x.size_bytes(), y.size_bytes()) << name;
    EXPECT_EQ(std::memcmp(x.bytes().data(), y.bytes().data(), x.size_bytes()),
              0)
        << name;
    // Adam's, and the averages that the targets are
    num_slots += name.find("adam") != std::string::npos ? 1 : 0;
    num_slots += name.starts_with("target/") ? 1 : 0;
  }
  EXPECT_GT(num_slots, 8);
}

void ExpectSameShards(replay::Shard& a, replay::Shard& b) {
  const replay::ShardSnapshot x = a.TakeSnapshot(), y = b.TakeSnapshot();
  EXPECT_EQ(x.counters, y.counters);
  EXPECT_EQ(x.last_serial, y.last_serial);
  EXPECT_EQ(x.tables[0].random_position, y.tables[0].random_position);
  EXPECT_EQ(x.tables[0].updates, y.tables[0].updates);
  const replay::TableContents &left = x.tables[0].contents,
                              &right = y.tables[0].contents;
  ASSERT_EQ(left.items.size(), right.items.size());
  for (size_t i = 0; i < left.items.size(); ++i) {
    const replay::TableItem &p = left.items[i], &q = right.items[i];
    EXPECT_EQ(std::tie(p.generation, p.step, p.times_sampled, p.reward,
                       p.discount, p.priority, p.n),
              std::tie(q.generation, q.step, q.times_sampled, q.reward,
                       q.discount, q.priority, q.n))
        << "slot " << i;
  }
  EXPECT_EQ(left.free_slots, right.free_slots);
  EXPECT_EQ(left.max_priority, right.max_priority);
  const replay::TableStatus s = a.Status().tables[0], t = b.Status().tables[0];
  EXPECT_EQ(s.inserts, t.inserts);
  EXPECT_EQ(s.samples, t.samples);
  EXPECT_EQ(s.error, t.error);
  // and so the draws that follow
  replay::SampledBatch one, two;
  ASSERT_EQ(a.TrySample(0, 64, "test", &one), 64);
  ASSERT_EQ(b.TrySample(0, 64, "test", &two), 64);
  EXPECT_EQ(one.total_steps, two.total_steps);
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(one.items[i].key, two.items[i].key);
    EXPECT_EQ(one.items[i].probability, two.items[i].probability);
  }
}

void CopyRun(const std::filesystem::path& from,
             const std::filesystem::path& to) {
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
}

TEST(ResumeTest, AllPartsOfARunGoOnFromOneStep) {
  const TemporaryFolder folder;
  LearnerConfig config{.parameter_bind = ""};
  config.checkpoint_interval_s = 0.0;
  config.limits.max_steps = 37;
  auto first = std::make_unique<Roles>(folder.path(), config, 12);
  EXPECT_EQ(first->learner().Run(), EndReason::kStepLimit);
  ASSERT_EQ(first->checkpoints().NewestManifest()->step, 37);
  // no batch was drawn that nobody learned from
  EXPECT_EQ(first->shard().Status().tables[0].samples, 37 * 16);
  EXPECT_EQ(first->shard().Status().tables[0].updates, 37 * 16);

  // the first one holds its folder
  const TemporaryFolder copy, another_copy;
  CopyRun(folder.path(), copy.path());
  CopyRun(folder.path(), another_copy.path());

  // before a learner draws from it
  replay::Shard restored(Roles::ShardOf(), &Clock::Real());
  const replay::Checkpointer checkpointer(
      {.folder = copy.path() / "replay", .restore_id = 1}, &restored);
  ExpectSameShards(restored, first->shard());

  auto second = std::make_unique<Roles>(another_copy.path(), config);
  EXPECT_EQ(second->learner().step(), 37);
  ExpectSameVariables(first->workload().variables(),
                      second->workload().variables());
  EXPECT_EQ(second->workload().State(), first->workload().State());
  EXPECT_EQ(second->workload().NumFrames(), 12 * 40 * 4);
}

// While it trains, too: what came after the cut is not in it.
TEST(ResumeTest, ACheckpointWithinARunIsOfItsStep) {
  const TemporaryFolder folder;
  LearnerConfig config{.parameter_bind = ""};
  config.checkpoint_interval_s = 0.01;
  config.num_kept_checkpoints = 1000;
  config.limits.max_steps = 1000;
  int64_t newest = 0;
  {
    Roles roles(folder.path(), config, 12);
    EXPECT_EQ(roles.learner().Run(), EndReason::kStepLimit);
    // as if the run had been killed a checkpoint earlier
    newest = roles.checkpoints().Steps().back();
    EXPECT_EQ(newest, 1000);
    ASSERT_GT(roles.checkpoints().Steps().size(), 1U);
    std::filesystem::remove_all(roles.checkpoints().PathOf(newest));
  }
  Roles resumed(folder.path(), config);
  const int64_t step = resumed.learner().step();
  EXPECT_GT(step, 0);
  EXPECT_LT(step, 1000);
  EXPECT_EQ(resumed.shard().Status().tables[0].updates, step * 16);
}

// Environment frames end a run, before and after a resume.
TEST(ResumeTest, TheFrameLimitCountsWhatTheReplayTells) {
  const TemporaryFolder folder;
  LearnerConfig config{.parameter_bind = ""};
  config.limits.max_frames = 5 * 40 * 4;
  EXPECT_EQ(Roles(folder.path(), config, 5).learner().Run(),
            EndReason::kFrameLimit);
  Roles resumed(folder.path(), config);
  const int64_t step = resumed.learner().step();
  EXPECT_EQ(resumed.learner().Run(), EndReason::kFrameLimit);
  EXPECT_EQ(resumed.learner().step(), step);
}

}  // namespace
}  // namespace replicant::learner
