#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agents/d4pg/representation.h"
#include "agents/d4pg/update.h"
#include "engine/graph/gradients.h"
#include "engine/nn/single_replica.h"
#include "tests/agents/learning_specs.h"
#include "tests/support/depends_on.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::agents::d4pg {
namespace {

using testing::DependsOn;
using testing::GraphRunner;
using testing::MessageOf;
using testing::ToDoubles;
using testing::Values;
using V = std::vector<double>;

constexpr int64_t kBatch = 4;
constexpr int64_t kHorizon = 3;
constexpr Support kSupport = {.v_min = 0.0, .v_max = 10.0, .num_atoms = 11};
constexpr CallSite kSite{"learner.cc", 5};

const LearningSpec kSpec = [] {
  LearningSpec spec = testing::LearningSpecOf(Shape({3}), 2);
  spec.dtype = DType::kF64;
  spec.window = kHorizon;
  return spec;
}();

D4pgConfig SmallConfig() {
  D4pgConfig config;
  config.networks = {.embedding_size = 5,
                     .embedding_activation = EmbeddingActivation::kElu,
                     .has_shared_embedding = true,
                     .policy_hidden_sizes = {8, 6},
                     .critic_hidden_sizes = {8, 6}};
  config.representation = {.horizon = kHorizon,
                           .action_embedding_size = 4,
                           .hidden_sizes = {7},
                           .state_action_size = 6,
                           .contrast_weight = 0.5};
  config.encoder_optimizer.learning_rate = 1e-2;
  return config;
}

// The steps that lead to a window's observations, for the first rows.
using Steps = std::vector<int64_t>;

// A batch of the runner's inputs. The last window has one step, the others
// bootstrap after two; `steps` begins with their second.
TransitionBatch FixedBatch(GraphRunner& runner,
                           const Steps& steps = {1, 0, 2}) {
  uint64_t seed = 1;
  const auto uniform = [&](const std::string& name, const Shape& shape,
                           double low, double high) {
    return runner.Input(
        name, testing::RandomUniform(DType::kF64, shape, low, high, seed++));
  };
  const auto fixed = [&](const std::string& name, const V& values) {
    return runner.Input(name,
                        Values(DType::kF64, Shape({kBatch, kHorizon}), values));
  };
  TransitionBatch batch{
      .observation = uniform("observation", Shape({kBatch, 3}), -1, 1),
      .action = uniform("action", Shape({kBatch, 2}), -1, 1),
      .reward = uniform("reward", Shape({kBatch}), 0, 3),
      .discount = uniform("discount", Shape({kBatch}), 0.5, 0.9),
      .importance_weight = uniform("weight", Shape({kBatch}), 0.1, 2)};
  // one picture of all steps, so that any choice sees the same ones
  const HostTensor all = testing::RandomUniform(
      DType::kF64, Shape({kBatch, kHorizon, 3}), -1, 1, seed++);
  const auto num_targets = static_cast<int64_t>(steps.size());
  HostTensor observations(DType::kF64, Shape({kBatch, num_targets, 3}));
  HostTensor follows(DType::kF64, Shape({kBatch, num_targets, kHorizon}));
  for (int64_t row = 0; row < kBatch; ++row) {
    for (int64_t t = 0; t < num_targets; ++t) {
      const bool is_last = row == kBatch - 1;
      if (is_last && t > 0) break;
      const int64_t step = is_last ? 0 : steps[static_cast<size_t>(t)];
      const int64_t target = row * num_targets + t;
      const auto from = static_cast<size_t>(3 * (row * kHorizon + step));
      std::ranges::copy(all.Span<double>().subspan(from, 3),
                        observations.MutableSpan<double>()
                            .subspan(static_cast<size_t>(3 * target))
                            .begin());
      follows.MutableSpan<double>()[static_cast<size_t>(target * kHorizon +
                                                        step)] = 1.0;
    }
  }
  batch.window = StepWindow{
      .observation =
          runner.Input("window_observation", std::move(observations)),
      .follows = runner.Input("window_follows", std::move(follows)),
      .action = uniform("window_action", Shape({kBatch, kHorizon, 2}), -1, 1),
      .reward = uniform("window_reward", Shape({kBatch, kHorizon}), 0, 1),
      .discount =
          fixed("window_discount", {1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0}),
      .mask = fixed("mask", {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0})};
  return batch;
}

Update Build(GraphRunner& runner, const D4pgConfig& config,
             const TransitionBatch& batch) {
  nn::SingleReplica replica(runner.graph());
  return BuildUpdate(replica, config, kSpec, kSupport, batch);
}

TEST(TwoHotRewardTest, SharesTheWeightByTheDistanceFromTwoAtoms) {
  GraphRunner runner;
  const double first = std::expm1(10.0 / 32.0);
  const double second = std::expm1(20.0 / 32.0);
  const V rewards = {0.0, first / 4.0, -0.5 * (first + second), 1e9, -1e9};
  const auto reward =
      runner.Input("reward", Values(DType::kF64, Shape({5}), rewards));
  const V rows = runner.Eval(TwoHotReward(reward));
  ASSERT_EQ(rows.size(), 5U * kNumRewardBins);
  const std::vector<std::vector<std::pair<size_t, double>>> wanted = {
      {{32, 1.0}},
      {{32, 0.75}, {33, 0.25}},
      {{31, 0.5}, {30, 0.5}},
      {{64, 1.0}},
      {{0, 1.0}}};
  for (size_t row = 0; row < wanted.size(); ++row) {
    V expected(kNumRewardBins, 0.0);
    for (const auto& [bin, weight] : wanted[row]) expected[bin] = weight;
    for (size_t bin = 0; bin < expected.size(); ++bin) {
      // the sizes of the last atoms are 2e4: 2e4 * 2^-53 of them is rounding
      EXPECT_NEAR(rows[row * kNumRewardBins + bin], expected[bin], 1e-9)
          << row << " " << bin;
    }
  }
}

// Only the model trains the encoder.
TEST(RepresentationTest, GradientsStopWhereTheyShould) {
  GraphRunner runner;
  Graph& graph = runner.graph();
  const Update update = Build(runner, SmallConfig(), FixedBatch(runner));
  const std::string encoder = "encoder/trunk/0/weight";
  const std::string joint = "representation/joint/0/weight";
  const std::string critic = "critic/head/0/weight";
  const std::string policy = "policy/head/0/weight";
  EXPECT_FALSE(DependsOn(update.critic_loss, encoder));
  EXPECT_FALSE(DependsOn(update.critic_loss, joint));
  EXPECT_TRUE(DependsOn(update.critic_loss, critic));
  EXPECT_FALSE(DependsOn(update.policy_loss, encoder));
  EXPECT_TRUE(DependsOn(update.policy_loss, policy));
  const auto names = [&](const nn::TrainedVariables& trained) {
    std::vector<std::string> all;
    for (const VariableId v : trained.variables) {
      const std::string& name = graph.variable(v).name;
      all.push_back(name.substr(0, name.find('/')));
    }
    return std::set<std::string>(all.begin(), all.end());
  };
  EXPECT_EQ(names(update.representation),
            (std::set<std::string>{"encoder", "representation"}));
  EXPECT_EQ(names(update.critic), std::set<std::string>{"critic"});
  EXPECT_EQ(names(update.policy), std::set<std::string>{"policy"});
}

TEST(RepresentationTest, LearnsToPredictAFixedBatch) {
  GraphRunner runner;
  const Update update = Build(runner, SmallConfig(), FixedBatch(runner));
  std::vector<Output> outputs;
  for (const auto& [name, loss] : update.representation_losses) {
    outputs.push_back(loss);
  }
  for (const auto& [name, value] : update.diagnostics) {
    if (name == "embedding_rank") outputs.push_back(value);
  }
  ASSERT_EQ(outputs.size(), 5U);
  const auto plan =
      runner.Compile({.outputs = outputs, .updates = update.updates});
  plan->Run();
  V first;
  for (int i = 0; i < 4; ++i) first.push_back(ToDoubles(plan->output(i))[0]);
  for (int i = 0; i < 100; ++i) plan->Run();
  for (int i = 0; i < 4; ++i) {
    EXPECT_LT(ToDoubles(plan->output(i))[0],
              0.8 * first[static_cast<size_t>(i)])
        << update.representation_losses[static_cast<size_t>(i)].first;
  }
  const double rank = ToDoubles(plan->output(4))[0];
  EXPECT_GT(rank, 1.0);
  EXPECT_LE(rank, kBatch - 1);
}

// Whatever the tensors hold behind the end of a window counts for nothing.
TEST(RepresentationTest, StepsBehindTheEndCountForNothing) {
  const auto losses = [](double behind) {
    GraphRunner runner;
    TransitionBatch batch = FixedBatch(runner);
    StepWindow& window = *batch.window;
    // the last two steps of the last window
    const auto change = [&](const char* name, Output* tensor, int64_t size) {
      const Shape shape = size > 1 ? Shape({kBatch, kHorizon, size})
                                   : Shape({kBatch, kHorizon});
      HostTensor changed =
          testing::RandomUniform(DType::kF64, shape, -1, 1, /*seed=*/77);
      std::ranges::fill(
          changed.MutableSpan<double>().last(static_cast<size_t>(2 * size)),
          behind);
      *tensor = runner.Input(name, std::move(changed));
    };
    change("changed_observation", &window.observation, 3);
    change("changed_action", &window.action, 2);
    change("changed_reward", &window.reward, 1);
    change("changed_discount", &window.discount, 1);
    const Update update = Build(runner, SmallConfig(), batch);
    V all;
    for (const auto& [name, loss] : update.representation_losses) {
      all.push_back(runner.Eval(loss)[0]);
    }
    return all;
  };
  EXPECT_EQ(losses(0.0), losses(0.9));
}

// The mean over all choices is the loss of all targets; but the contrast has
// fewer negatives.
TEST(RepresentationTest, FewTargetsCountForAllSteps) {
  const auto losses = [](const Steps& steps) {
    GraphRunner runner;
    const Update update =
        Build(runner, SmallConfig(), FixedBatch(runner, steps));
    std::map<std::string, double> all;
    for (const auto& [name, loss] : update.representation_losses) {
      all[name] = runner.Eval(loss)[0];
    }
    return all;
  };
  auto of_all = losses({1, 0, 2});
  auto of_first = losses({1, 0});
  auto of_third = losses({1, 2});
  EXPECT_NE(of_first["latent_loss"], of_third["latent_loss"]);
  EXPECT_NEAR((of_first["latent_loss"] + of_third["latent_loss"]) / 2.0,
              of_all["latent_loss"], 1e-12);
  EXPECT_LT((of_first["contrast_loss"] + of_third["contrast_loss"]) / 2.0,
            of_all["contrast_loss"]);
  for (const char* const name : {"reward_loss", "end_loss"}) {
    EXPECT_EQ(of_first[name], of_all[name]) << name;
  }
}

}  // namespace
}  // namespace replicant::agents::d4pg
