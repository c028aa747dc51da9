#include "learner/workloads/agent/agent_workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "agents/agent_steps.h"
#include "base/error.h"
#include "base/rng.h"
#include "engine/runtime/numeric_check.h"
#include "tests/learner/workloads/d4pg_options.h"
#include "tests/support/log_lines.h"
#include "tests/support/message_of.h"

namespace replicant::learner {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::Gt;
using ::testing::Not;
using ::testing::StartsWith;

using testing::MessageOf;

constexpr int64_t kBatch = 16;

// A bandit: the reward is 1 - (a - 0.5)^2, whatever is observed.
class BanditTransitions : public replay::BatchSource {
 public:
  replay::ReadResult Next(Clock::TimePoint /*deadline*/,
                          replay::Batch* batch) override {
    if (is_empty) return replay::ReadResult::kTimeout;
    if (is_paused_) return replay::ReadResult::kPaused;
    batch->size = kBatch;
    batch->observations = HostBuffer(kBatch * 2 * sizeof(float));
    batch->next_observations = HostBuffer(kBatch * 2 * sizeof(float));
    batch->actions = HostBuffer(kBatch * sizeof(float));
    batch->rewards.clear();
    std::vector<float> actions;
    for (int64_t i = 0; i < kBatch; ++i) {
      const double action = random_.Uniform(-1.0, 1.0);
      actions.push_back(static_cast<float>(action));
      batch->rewards.push_back(
          static_cast<float>(1.0 - (action - 0.5) * (action - 0.5)));
    }
    std::memcpy(batch->actions.data(), actions.data(),
                batch->actions.size_bytes());
    if (reward_of_row_3) batch->rewards[3] = *reward_of_row_3;
    batch->discounts.assign(kBatch, 0.0F);
    batch->weights.assign(kBatch, 1.0F);
    batch->total_steps = total_steps + lost_steps;
    batch->lost_steps = lost_steps;
    batch->keys.assign(kBatch, {.slot = num_batches++});
    if (!ages.empty()) batch->ages = ages;
    batch->times_sampled = batch->ages;
    if (!shards.empty()) batch->shards = shards;
    batch->num_restarts.assign(2, 0);
    return replay::ReadResult::kOk;
  }
  void UpdatePriorities(const replay::Batch& batch,
                        std::span<const float> priorities) override {
    learned.insert(batch.keys.at(0).slot);
    last_priorities.assign(priorities.begin(), priorities.end());
    ++num_updates;
  }
  void SetLostSteps(int64_t num_steps) override { lost_steps = num_steps; }
  void SetPaused(bool is_paused) override { is_paused_ = is_paused; }
  void StartCheckpoint(uint64_t /*id*/,
                       const std::filesystem::path& /*folder*/) override {}
  replay::CheckpointState PollCheckpoint() override {
    return replay::CheckpointState::kNotKept;
  }

  int64_t total_steps = 0;  // without those lost
  int64_t lost_steps = 0;
  bool is_empty = false;
  std::optional<float> reward_of_row_3;
  std::vector<int64_t> ages;
  std::vector<int32_t> shards;
  int num_updates = 0;
  std::vector<float> last_priorities;
  uint32_t num_batches = 0;
  // numbers of those whose priorities came
  std::set<uint32_t> learned;

 private:
  bool is_paused_ = false;
  RandomStream random_{/*seed=*/5, "bandit"};
};

D4pgOptions Options() {
  D4pgOptions options;
  options.agent.networks.policy_hidden_sizes = {16, 16};
  options.agent.networks.critic_hidden_sizes = {32, 32};
  options.agent.distribution.num_atoms = 21;
  options.agent.critic_optimizer.learning_rate = 3e-3;
  options.agent.policy_optimizer.learning_rate = 1e-3;
  options.spec.task = {.observation = Shape({2}),
                       .action_minimum = {-1.0},
                       .action_maximum = {1.0}};
  options.spec.discount = 0.0;
  options.learner.batch_size = kBatch;
  options.learner.replication.backend = "reference";
  return options;
}

double ScalarOf(const Workload& workload, const std::string& name) {
  for (const auto& [key, value] : workload.Scalars()) {
    if (key == name) return value;
  }
  ADD_FAILURE() << "no scalar " << name;
  return 0.0;
}

class D4pgPrecisionTest : public ::testing::TestWithParam<graph::Precision> {};

INSTANTIATE_TEST_SUITE_P(Both, D4pgPrecisionTest,
                         ::testing::Values(graph::Precision::kF32,
                                           graph::Precision::kBF16));

TEST_P(D4pgPrecisionTest, LearnsABandit) {
  BanditTransitions bandit;
  D4pgOptions options = Options();
  options.learner.precision = GetParam();
  AgentWorkload workload = MakeWorkload(options, &bandit);
  ASSERT_EQ(workload.Step({}), NextResult::kOk);
  const double first_policy_loss = ScalarOf(workload, "policy_loss");
  for (int i = 0; i < 400; ++i) {
    ASSERT_EQ(workload.Step({}), NextResult::kOk);
  }
  // the best action's value is 1, the first policy's near 0.75
  EXPECT_LT(ScalarOf(workload, "policy_loss"), -0.9);
  EXPECT_GT(first_policy_loss, -0.8);
  EXPECT_EQ(bandit.num_updates, 401);
  EXPECT_EQ(bandit.last_priorities.size(), static_cast<size_t>(kBatch));
  EXPECT_THAT(bandit.last_priorities, Each(Gt(0.0F)));
}

// Replicas that do not wait for each other: every batch's priorities are its
// own, and a pause leaves nothing under way.
TEST(AgentWorkloadTest, LearnsABanditByHogwild) {
  BanditTransitions bandit;
  D4pgOptions options = Options();
  options.learner.replication.strategy = &replicator::Strategy::kHogwild;
  options.learner.replication.replicas = 3;
  AgentWorkload workload = MakeWorkload(options, &bandit);
  int num_steps = 0;
  for (; num_steps < 600; ++num_steps) {
    ASSERT_EQ(workload.Step({}), NextResult::kOk);
  }
  EXPECT_LT(ScalarOf(workload, "policy_loss"), -0.85);
  workload.input()->SetPaused(true);
  EXPECT_FALSE(workload.input()->IsDrained());
  while (!workload.input()->IsDrained()) {
    if (workload.Step({}) == NextResult::kOk) ++num_steps;
  }
  EXPECT_EQ(bandit.num_updates, num_steps);
  EXPECT_EQ(bandit.num_batches, static_cast<uint32_t>(num_steps));
  EXPECT_EQ(bandit.learned.size(), static_cast<size_t>(num_steps));
  EXPECT_EQ(workload.variables().Get("step").Span<int64_t>()[0], num_steps);
  // and it goes on
  workload.input()->SetPaused(false);
  EXPECT_EQ(workload.Step({}), NextResult::kOk);
}

TEST(AgentWorkloadTest, TargetsBeginAsCopies) {
  BanditTransitions bandit;
  AgentWorkload workload = MakeWorkload(Options(), &bandit);
  int num_targets = 0;
  for (const auto& [name, variable] : workload.variables().variables()) {
    if (!name.starts_with("target/")) continue;
    ++num_targets;
    const HostTensor target = workload.variables().Get(name);
    const HostTensor online =
        workload.variables().Get(name.substr(strlen("target/")));
    EXPECT_EQ(std::memcmp(target.bytes().data(), online.bytes().data(),
                          target.size_bytes()),
              0)
        << name;
  }
  EXPECT_GT(num_targets, 8);
}

TEST(AgentWorkloadTest, PublishesThePolicyAlone) {
  BanditTransitions bandit;
  const AgentWorkload workload = MakeWorkload(Options(), &bandit);
  EXPECT_THAT(workload.PublishedVariables(), Each(StartsWith("policy/")));
  EXPECT_THAT(workload.PublishedVariables(),
              Not(Contains(StartsWith("critic"))));
  EXPECT_FALSE(workload.PublishedVariables().empty());
}

TEST(AgentWorkloadTest, CountsTheFramesThatTheReplayTellsOf) {
  BanditTransitions bandit;
  bandit.total_steps = 500;
  D4pgOptions options = Options();
  options.spec.task.action_repeat = 4;
  AgentWorkload workload = MakeWorkload(options, &bandit);
  EXPECT_EQ(workload.NumFrames(), 0);
  EXPECT_EQ(workload.ReplayRatio(1), std::nullopt);
  ASSERT_EQ(workload.Step({}), NextResult::kOk);
  EXPECT_EQ(workload.NumFrames(), 2000);
  EXPECT_EQ(workload.ReplayRatio(250), 0.5);
  EXPECT_EQ(workload.PublishedMetadata().at(agents::kAgentStepsKey), "500");
  // a replay that was restored counts what it lost later
  bandit.total_steps = 300;
  ASSERT_EQ(workload.Step({}), NextResult::kOk);
  EXPECT_EQ(workload.NumFrames(), 2000);

  AgentWorkload resumed = MakeWorkload(options, &bandit);
  resumed.Restore(workload.State());
  EXPECT_EQ(resumed.NumFrames(), 2000);
  EXPECT_THROW(resumed.Restore({{agents::kAgentStepsKey, "5x"}}),
               InvalidArgument);
}

// Only the reader that saw a service restart knows what was lost.
TEST(AgentWorkloadTest, GivesTheNextReaderTheLostSteps) {
  BanditTransitions bandit;
  bandit.total_steps = 300;
  bandit.lost_steps = 200;
  AgentWorkload workload = MakeWorkload(Options(), &bandit);
  ASSERT_EQ(workload.Step({}), NextResult::kOk);
  EXPECT_EQ(workload.NumFrames(), 500);

  BanditTransitions next;
  next.total_steps = 400;
  AgentWorkload resumed = MakeWorkload(Options(), &next);
  // a batch that was drawn before
  ASSERT_EQ(resumed.Step({}), NextResult::kOk);
  resumed.Restore(workload.State());
  ASSERT_EQ(resumed.Step({}), NextResult::kOk);
  EXPECT_EQ(resumed.NumFrames(), 600);
  EXPECT_EQ(resumed.State(),
            (std::map<std::string, std::string>{{agents::kAgentStepsKey, "600"},
                                                {"lost_steps", "200"}}));
  // a checkpoint of an older version
  resumed.Restore({{agents::kAgentStepsKey, "500"}});
  EXPECT_EQ(next.lost_steps, 0);
}

TEST(AgentWorkloadTest, WaitsWithoutTransitions) {
  BanditTransitions bandit;
  bandit.is_empty = true;
  AgentWorkload workload = MakeWorkload(Options(), &bandit);
  EXPECT_EQ(workload.Step({}), NextResult::kTimeout);
  EXPECT_EQ(bandit.num_updates, 0);
}

// Curves that a user tunes by.
TEST(AgentWorkloadTest, GivesRatesNormsAndAges) {
  BanditTransitions bandit;
  D4pgOptions options = Options();
  options.agent.policy_optimizer = {.learning_rate = 1e-3,
                                    .schedule = agents::d4pg::Schedule::kLinear,
                                    .schedule_steps = 10,
                                    .max_gradient_norm = 0.0};
  AgentWorkload workload = MakeWorkload(options, &bandit);
  ASSERT_EQ(workload.Step({}), NextResult::kOk);
  EXPECT_NEAR(ScalarOf(workload, "policy_learning_rate"), 1e-3, 1e-9);
  ASSERT_EQ(workload.Step({}), NextResult::kOk);
  EXPECT_NEAR(ScalarOf(workload, "policy_learning_rate"), 0.9e-3, 1e-9);
  EXPECT_NEAR(ScalarOf(workload, "critic_learning_rate"), 3e-3, 1e-9);
  EXPECT_GT(ScalarOf(workload, "critic_gradient_norm"), 0.0);
  EXPECT_EQ(ScalarOf(workload, "sample_age"), 0.0);
  // two services; rows of prior data do not count
  AgentWorkload aged = MakeWorkload(options, &bandit);
  bandit.ages.assign(kBatch, 6);
  bandit.ages[0] = 6 + kBatch - 1;
  bandit.ages[1] = 1'000'000;
  bandit.shards.assign(kBatch, 1);
  bandit.shards[1] = replay::Batch::kPriorShard;
  ASSERT_EQ(aged.Step({}), NextResult::kOk);
  EXPECT_EQ(ScalarOf(aged, "sample_age"), 2 * 7.0);
  EXPECT_EQ(ScalarOf(aged, "times_sampled"), 7.0);
  std::vector<std::string> names;
  for (const auto& [name, values] : workload.Histograms()) {
    names.push_back(name);
    EXPECT_EQ(values.size(), static_cast<size_t>(kBatch)) << name;
  }
  EXPECT_THAT(names,
              ::testing::ElementsAre("priority", "value", "td_error",
                                     "target_entropy", "policy_saturation"));
  // untrained actions are near 0
  EXPECT_EQ(ScalarOf(workload, "policy_saturation"), 0.0);
  EXPECT_GT(ScalarOf(workload, "target_entropy"), 0.0);
  EXPECT_NE(ScalarOf(workload, "td_error"), 0.0);
}

TEST(AgentWorkloadTest, RefusesNumbersThatNoStepCanUse) {
  for (const bool is_hogwild : {false, true}) {
    BanditTransitions bandit;
    D4pgOptions options = Options();
    if (is_hogwild) {
      options.learner.replication.strategy = &replicator::Strategy::kHogwild;
      options.learner.replication.replicas = 2;
    }
    AgentWorkload workload = MakeWorkload(options, &bandit);
    ASSERT_EQ(workload.Step({}), NextResult::kOk);
    bandit.reward_of_row_3 = std::numeric_limits<float>::quiet_NaN();
    const std::string message = MessageOf<runtime::NumericError>([&] {
      while (workload.Step({}) == NextResult::kOk) {
      }
    });
    EXPECT_THAT(message,
                EndsWith(": input 'reward': row 3 is nan; want finite numbers; "
                         "hint: the replay holds it: mend what has written it, "
                         "then resume the run, which leaves such steps out"))
        << is_hogwild;
    EXPECT_THAT(message, StartsWith("batch ")) << is_hogwild;
  }
}

// A policy that becomes good may leave a range that random actions kept.
TEST(AgentWorkloadTest, WarnsAgainOfReturnsFurtherOutside) {
  BanditTransitions bandit;
  D4pgOptions options = Options();
  options.agent.distribution.v_min = -2.0;
  options.agent.distribution.v_max = 1.0;
  AgentWorkload workload = MakeWorkload(options, &bandit);
  const replicant::testing::LogLines lines;
  const auto num_warnings = [&](float reward) {
    bandit.reward_of_row_3 = reward;
    // a batch may have been read ahead
    for (int i = 0; i < 3; ++i) EXPECT_EQ(workload.Step({}), NextResult::kOk);
    return lines.lines().size();
  };
  EXPECT_EQ(num_warnings(0.5F), 0U);
  EXPECT_EQ(num_warnings(-5.0F), 1U);
  EXPECT_EQ(num_warnings(-6.0F), 1U);
  EXPECT_EQ(num_warnings(20.0F), 2U);
  EXPECT_THAT(lines.lines()[0],
              EndsWith("running, or agent.distribution.v_min <= -5"));
  EXPECT_THAT(lines.lines()[1],
              EndsWith("running, or agent.distribution.v_max >= 20"));
}

TEST(AgentWorkloadTest, RefusesABatchOfAnotherSize) {
  BanditTransitions bandit;
  D4pgOptions options = Options();
  options.learner.batch_size = 32;
  AgentWorkload workload = MakeWorkload(options, &bandit);
  EXPECT_THROW(static_cast<void>(workload.Step({})), CommError);
}

}  // namespace
}  // namespace replicant::learner
