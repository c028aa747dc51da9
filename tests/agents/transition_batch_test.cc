#include "agents/transition_batch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/agents/learning_specs.h"

namespace replicant::agents {
namespace {

std::vector<std::string> TensorsOf(const LearningSpec& spec) {
  std::vector<std::string> tensors;
  for (const TransitionTensor& tensor : TransitionTensors(spec, 6)) {
    tensors.push_back(fmt::format("{} {}{}", tensor.name,
                                  DTypeName(tensor.dtype),
                                  tensor.shape.ToString()));
  }
  return tensors;
}

TEST(TransitionBatchTest, AStateHasSixTensors) {
  EXPECT_EQ(TensorsOf(testing::LearningSpecOf(Shape({4}), 2)),
            (std::vector<std::string>{"observation f32[6,4]", "action f32[6,2]",
                                      "reward f32[6]", "discount f32[6]",
                                      "importance_weight f32[6]",
                                      "next_observation f32[6,4]"}));
}

TEST(TransitionBatchTest, PixelsWithAStateAndAWindowHaveAll) {
  LearningSpec spec = testing::LearningSpecOf(Shape({8, 8, 3}), 2);
  spec.task.state_size = 5;
  spec.window = 3;
  spec.window_observations = 2;
  spec.dtype = DType::kF64;
  EXPECT_EQ(TensorsOf(spec),
            (std::vector<std::string>{
                "observation u8[6,8,8,3]", "action f64[6,2]", "reward f64[6]",
                "discount f64[6]", "importance_weight f64[6]",
                "window_observation u8[6,2,8,8,3]", "window_follows f64[6,2,3]",
                "window_action f64[6,3,2]", "window_reward f64[6,3]",
                "window_discount f64[6,3]", "window_mask f64[6,3]",
                "state f64[6,5]", "window_state f64[6,2,5]"}));
}

TEST(TransitionBatchTest, PriorDataHasAWeightOfItsRows) {
  LearningSpec spec = testing::LearningSpecOf(Shape({4}), 2);
  spec.has_prior = true;
  EXPECT_EQ(TensorsOf(spec).back(), "prior_weight f32[6]");
  EXPECT_EQ(TensorsOf(spec).size(), 7U);
}

// Would catch a tensor of the list that no field of the batch receives.
TEST(TransitionBatchTest, ABatchTakesEveryTensor) {
  LearningSpec spec = testing::LearningSpecOf(Shape({8, 8, 3}), 2);
  spec.task.state_size = 5;
  spec.window = 3;
  spec.window_observations = 3;
  spec.has_prior = true;
  graph::Graph graph;
  std::set<std::string> taken;
  const auto batch = TransitionBatch::From(spec, [&](const std::string& name) {
    EXPECT_TRUE(taken.insert(name).second) << name;
    return graph.Input(name, DType::kF32, Shape({}));
  });
  EXPECT_EQ(taken.size(), TransitionTensors(spec, 6).size());
  const auto name_of = [&](graph::Output output) {
    return output.producer().name;
  };
  EXPECT_FALSE(batch.next_state.is_valid());
  EXPECT_EQ(name_of(batch.window->state), "window_state");
  EXPECT_EQ(name_of(batch.prior_weight), "prior_weight");
  EXPECT_EQ(name_of(batch.window->follows), "window_follows");
}

}  // namespace
}  // namespace replicant::agents
