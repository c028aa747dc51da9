#include "replay/client/importance_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "replay/table/selector.h"
#include "tests/support/message_of.h"

namespace replicant::replay {
namespace {

using replicant::testing::MessageOf;
using ::testing::ElementsAre;
using ::testing::FloatNear;

TEST(ImportanceWeightsTest, AreThePowerOfTheProbabilityScaledToOne) {
  std::vector<float> weights(3);
  ImportanceWeights(std::vector<double>{0.1, 0.4, 0.2}, 0.5, weights);
  EXPECT_THAT(weights,
              ElementsAre(1.0f, 0.5f, FloatNear(std::sqrt(0.5f), 1e-6f)));
  ImportanceWeights(std::vector<double>{0.1, 0.4, 0.2}, 0.0, weights);
  EXPECT_THAT(weights, ElementsAre(1.0f, 1.0f, 1.0f));
}

// The estimate that importance sampling is for: with exponent 1 the weighted
// mean over prioritized draws equals the plain mean over all items.
TEST(ImportanceWeightsTest, UndoTheUnevenSampling) {
  const auto selector = MakeSelector(SelectorKind::kPrioritized, 3, 0.6);
  const std::vector<double> priorities = {0.2, 1.0, 7.0};
  const std::vector<double> values = {3.0, -1.0, 10.0};
  for (size_t i = 0; i < 3; ++i) {
    selector->Insert(static_cast<int64_t>(i), priorities[i]);
  }
  constexpr size_t kDraws = 100'000;
  RandomStream random(4, "estimate");
  std::vector<Draw> draws(kDraws);
  selector->Select(random, draws);
  std::vector<double> probabilities(kDraws);
  for (size_t i = 0; i < kDraws; ++i) probabilities[i] = draws[i].probability;
  std::vector<float> weights(kDraws);
  ImportanceWeights(probabilities, 1.0, weights);
  double sum = 0.0, sum_of_weights = 0.0;
  for (size_t i = 0; i < kDraws; ++i) {
    sum += weights[i] * values[static_cast<size_t>(draws[i].slot)];
    sum_of_weights += weights[i];
  }
  // stratified: the error is of order 1 / kDraws per boundary
  EXPECT_NEAR(sum / sum_of_weights, 4.0, 1e-3);
}

TEST(ImportanceScheduleTest, IsLinearAndThenConstant) {
  const ImportanceSchedule constant{.exponent = 0.4};
  EXPECT_EQ(constant.At(0), 0.4);
  EXPECT_EQ(constant.At(1'000'000), 0.4);
  const ImportanceSchedule rising{
      .exponent = 0.5, .final_exponent = 1.0, .steps = 100};
  EXPECT_EQ(rising.At(0), 0.5);
  EXPECT_EQ(rising.At(50), 0.75);
  EXPECT_EQ(rising.At(100), 1.0);
  EXPECT_EQ(rising.At(101), 1.0);
}

TEST(ImportanceWeightsTest, RefuseWhatIsNotAProbability) {
  std::vector<float> weights(1);
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { ImportanceWeights(std::vector{0.0}, 0.5, weights); }),
            "ImportanceWeights: probability 0 is outside (0, 1]");
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { ImportanceWeights(std::vector{0.5}, 2.0, weights); }),
            "ImportanceWeights: exponent 2 is outside [0, 1]");
}

}  // namespace
}  // namespace replicant::replay
