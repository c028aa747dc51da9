#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "agents/d4pg/losses.h"
#include "agents/d4pg/update.h"
#include "engine/graph/gradients.h"
#include "engine/nn/single_replica.h"
#include "tests/agents/learning_specs.h"
#include "tests/support/graph_runner.h"
#include "tests/support/tensor_values.h"

namespace replicant::agents::d4pg {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using testing::GraphRunner;
using testing::RandomUniform;
using testing::ToDoubles;
using testing::Values;
using V = std::vector<double>;

// Four rows, of which two are prior data: their weight is 4 / 2.
const V kAction = {0.5, -0.5, 0.9, 0.1, 0.25, 0.75, 0.0, -1.0};
const V kDemonstration = {0.0, 0.0, 0.0, 0.0, 0.75, 0.25, 1.0, -1.0};
const V kPriorWeight = {0.0, 0.0, 2.0, 2.0};

BehaviourCloningInputs FourRows(GraphRunner& runner) {
  const auto input = [&](const std::string& name, const Shape& shape,
                         const V& values) {
    return runner.Input(name, Values(DType::kF64, shape, values));
  };
  return {
      .action = input("action", Shape({4, 2}), kAction),
      .demonstration = input("demonstration", Shape({4, 2}), kDemonstration),
      .prior_weight = input("prior_weight", Shape({4}), kPriorWeight),
      // the critic prefers the third row's demonstration, and the fourth
      // row's action
      .demonstration_value =
          input("demonstration_value", Shape({4}), {9.0, 9.0, 5.0, 3.0}),
      .value = input("value", Shape({4}), {1.0, 1.0, 4.0, 3.0})};
}

// The gradient by the action, [4, 2].
V GradientByAction(GraphRunner& runner, const BehaviourCloningInputs& inputs,
                   Output loss) {
  return ToDoubles(
      runner.EvalTensor(graph::Gradients(loss, {inputs.action})[0]).view());
}

TEST(BehaviourCloningTest, IsTheMeanSquaredErrorOfPriorDataAlone) {
  GraphRunner runner;
  const BehaviourCloningInputs inputs = FourRows(runner);
  const auto result = BehaviourCloning(inputs, /*has_q_filter=*/false);
  // rows 2 and 3: (0.5^2 + 0.5^2) / 2 and (1 + 0) / 2
  EXPECT_THAT(runner.Eval(result.loss),
              ElementsAre(DoubleNear((0.25 + 0.5) / 2.0, 1e-15)));
  EXPECT_FALSE(result.share.is_valid());
  // 2 (action - demonstration) / (2 rows * 2 numbers)
  EXPECT_THAT(GradientByAction(runner, inputs, result.loss),
              ElementsAreArray(V{0, 0, 0, 0, -0.25, 0.25, -0.5, 0}));
  EXPECT_LT(runner.MaxGradientError(result.loss, {inputs.action}),
            testing::kGradientTolerance);
}

TEST(BehaviourCloningTest, TheFilterKeepsWhatTheCriticPrefers) {
  GraphRunner runner;
  const BehaviourCloningInputs inputs = FourRows(runner);
  const auto result = BehaviourCloning(inputs, /*has_q_filter=*/true);
  EXPECT_THAT(runner.Eval(result.loss), ElementsAre(DoubleNear(0.125, 1e-15)));
  EXPECT_THAT(runner.Eval(result.share), ElementsAre(DoubleNear(0.5, 1e-15)));
  EXPECT_THAT(GradientByAction(runner, inputs, result.loss),
              ElementsAreArray(V{0, 0, 0, 0, -0.25, 0.25, 0, 0}));
}

TEST(BehaviourCloningTest, TheWeightFollowsItsSchedule) {
  const auto weight = [](const BehaviourCloningConfig& config, int64_t step) {
    GraphRunner runner;
    return runner.Eval(BehaviourCloningWeight(
        runner.graph(), config,
        runner.Input("step", Values(DType::kI64, Shape({}),
                                    {static_cast<double>(step)})),
        DType::kF64))[0];
  };
  const BehaviourCloningConfig falling{.weight = 2.0,
                                       .final_weight = 0.5,
                                       .decay_start = 10,
                                       .decay_updates = 30};
  EXPECT_DOUBLE_EQ(weight(falling, 0), 2.0);
  EXPECT_DOUBLE_EQ(weight(falling, 10), 2.0);
  EXPECT_DOUBLE_EQ(weight(falling, 20), 1.5);
  EXPECT_DOUBLE_EQ(weight(falling, 40), 0.5);
  EXPECT_DOUBLE_EQ(weight(falling, 1000), 0.5);
  EXPECT_DOUBLE_EQ(weight({.weight = 2.0}, 1000), 2.0);
}

constexpr int64_t kBatch = 6;

// An update of a small agent: its policy's loss and gradients, and what
// behaviour cloning tells.
struct Built {
  double policy_loss = 0.0;
  double critic_loss = 0.0;
  std::vector<V> policy_gradients;
  // by name, those of behaviour cloning
  std::vector<std::pair<std::string, double>> told;
};

Built Build(const BehaviourCloningConfig& cloning) {
  GraphRunner runner(/*backend=*/"reference", /*seed=*/3);
  LearningSpec spec = testing::LearningSpecOf(Shape({5}), 2);
  spec.dtype = DType::kF64;
  spec.has_prior = true;
  D4pgConfig config;
  config.networks.policy_hidden_sizes = {8, 6};
  config.networks.critic_hidden_sizes = {8, 6};
  config.networks.policy_last_layer_scale = 1.0;
  config.networks.critic_last_layer_scale = 1.0;
  config.behaviour_cloning = cloning;
  TransitionBatch batch;
  uint64_t seed = 0;
  batch = TransitionBatch::From(spec, [&](const std::string& name) {
    for (const TransitionTensor& tensor : TransitionTensors(spec, kBatch)) {
      if (tensor.name != name) continue;
      return runner.Input(
          name, RandomUniform(DType::kF64, tensor.shape, 0.1, 0.9, ++seed));
    }
    return Output();
  });
  nn::SingleReplica replica(runner.graph());
  const Update update =
      BuildUpdate(replica, config, spec,
                  {.v_min = 0.0, .v_max = 10.0, .num_atoms = 11}, batch);
  Built built;
  built.policy_loss = runner.Eval(update.policy_loss)[0];
  built.critic_loss = runner.Eval(update.critic_loss)[0];
  for (const Output gradient : update.policy.gradients) {
    built.policy_gradients.push_back(runner.Eval(gradient));
  }
  for (const auto* all : {&update.diagnostics, &update.scalars}) {
    for (const auto& [name, output] : *all) {
      if (!name.starts_with("behaviour_cloning")) continue;
      built.told.emplace_back(name, runner.Eval(output)[0]);
    }
  }
  return built;
}

// The policy's loss and gradients are linear in the weight; the critic's loss
// does not depend on it.
TEST(BehaviourCloningTest, IsAPartOfThePolicysLossAlone) {
  const Built none = Build({});
  const Built one = Build({.weight = 1.0});
  const Built three = Build({.weight = 3.0});
  EXPECT_TRUE(none.told.empty());
  ASSERT_EQ(one.told.size(), 2U);
  EXPECT_EQ(one.told[0].first, "behaviour_cloning_loss");
  EXPECT_EQ(one.told[1],
            (std::pair<std::string, double>("behaviour_cloning_weight", 1.0)));
  const double loss = one.told[0].second;
  EXPECT_GT(loss, 0.01);
  EXPECT_NEAR(one.policy_loss, none.policy_loss + loss, 1e-12);
  EXPECT_NEAR(three.policy_loss, none.policy_loss + 3.0 * loss, 1e-12);
  EXPECT_EQ(one.critic_loss, none.critic_loss);
  double largest = 0.0;
  for (size_t i = 0; i < none.policy_gradients.size(); ++i) {
    for (size_t k = 0; k < none.policy_gradients[i].size(); ++k) {
      const double difference =
          one.policy_gradients[i][k] - none.policy_gradients[i][k];
      largest = std::max(largest, std::abs(difference));
      EXPECT_NEAR(three.policy_gradients[i][k],
                  none.policy_gradients[i][k] + 3.0 * difference, 1e-12);
    }
  }
  EXPECT_GT(largest, 1e-3);
}

TEST(BehaviourCloningTest, TellsTheShareThatTheFilterKeeps) {
  const Built built = Build({.weight = 1.0, .has_q_filter = true});
  ASSERT_EQ(built.told.size(), 3U);
  EXPECT_EQ(built.told[1].first, "behaviour_cloning_share");
}

}  // namespace
}  // namespace replicant::agents::d4pg
