#include "replicator/comm/top_k.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace replicant::comm {
namespace {

using ::testing::ElementsAre;

struct Sent {
  std::vector<int32_t> indices;
  std::vector<float> values;
};

Sent Take(TopKResidual* residual, const std::vector<float>& gradient,
          size_t k) {
  Sent sent{std::vector<int32_t>(k), std::vector<float>(k)};
  residual->AddAndTake(gradient, sent.indices, sent.values);
  return sent;
}

TEST(TopKTest, CountsAtLeastOneElement) {
  EXPECT_EQ(TopKCount(0, 0.01), 0);
  EXPECT_EQ(TopKCount(1, 0.01), 1);
  EXPECT_EQ(TopKCount(100, 0.01), 1);
  EXPECT_EQ(TopKCount(101, 0.01), 2);
  EXPECT_EQ(TopKCount(7, 1.0), 7);
}

TEST(TopKTest, TakesTheLargestMagnitudesAndOfEqualOnesTheFirst) {
  TopKResidual residual(6);
  const Sent first = Take(&residual, {1, -3, 2, -2, 2, 0}, 3);
  EXPECT_THAT(first.indices, ElementsAre(1, 2, 3));
  EXPECT_THAT(first.values, ElementsAre(-3, 2, -2));
  EXPECT_THAT(residual.residual(), ElementsAre(1, 0, 0, 0, 2, 0));
  // what was kept counts again
  const Sent second = Take(&residual, {1.5, 1, 0, 0, 0, 0}, 2);
  EXPECT_THAT(second.indices, ElementsAre(0, 4));
  EXPECT_THAT(second.values, ElementsAre(2.5, 2));
}

// A number that is none must not hide in a residual.
TEST(TopKTest, SendsWhatIsNotFinite) {
  TopKResidual residual(4);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const Sent sent = Take(&residual, {1e30F, nan, 1e38F, -infinity}, 2);
  EXPECT_THAT(sent.indices, ElementsAre(1, 3));
  EXPECT_TRUE(std::isnan(sent.values[0]));
}

// Against a full sort, over sizes and shares, with many equal values.
TEST(TopKTest, AgreesWithASort) {
  std::mt19937 random(3);
  for (const size_t count :
       {size_t{1}, size_t{17}, size_t{1000}, size_t{30'000}}) {
    for (const double share : {1e-3, 0.1, 0.5, 1.0}) {
      for (const bool is_coarse : {false, true}) {
        std::normal_distribution<float> normal;
        std::vector<float> gradient(count);
        for (float& x : gradient) {
          x = normal(random);
          if (is_coarse) x = std::round(2.0F * x);
        }
        std::vector<int32_t> order(count);
        for (size_t i = 0; i < count; ++i) order[i] = static_cast<int32_t>(i);
        std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
          return std::abs(gradient[static_cast<size_t>(a)]) >
                 std::abs(gradient[static_cast<size_t>(b)]);
        });
        order.resize(TopKCount(count, share));
        std::ranges::sort(order);
        TopKResidual residual(count);
        EXPECT_EQ(Take(&residual, gradient, order.size()).indices, order);
      }
    }
  }
}

// Whole numbers, whose sums are exact: all that was sent and what is left are
// all that came, to the bit. With any values each step conserves its own.
TEST(TopKTest, ConservesGradients) {
  constexpr size_t kCount = 2'000;
  std::mt19937 random(5);
  std::uniform_int_distribution<int> whole(-50, 50);
  std::normal_distribution<float> normal;
  for (const bool is_whole : {true, false}) {
    TopKResidual residual(kCount);
    std::vector<float> came(kCount);
    std::vector<float> sent(kCount);
    for (int step = 0; step < 40; ++step) {
      std::vector<float> gradient(kCount);
      for (float& x : gradient) {
        x = is_whole ? static_cast<float>(whole(random)) : normal(random);
      }
      std::vector<float> expected(residual.residual().begin(),
                                  residual.residual().end());
      for (size_t i = 0; i < kCount; ++i) {
        came[i] += gradient[i];
        expected[i] += gradient[i];
      }
      const Sent now = Take(&residual, gradient, 20);
      AddSparse(now.indices, now.values, sent);
      std::vector<float> after(residual.residual().begin(),
                               residual.residual().end());
      AddSparse(now.indices, now.values, after);
      ASSERT_EQ(after, expected) << "step " << step;
    }
    if (!is_whole) continue;
    std::vector<float> all = sent;
    for (size_t i = 0; i < kCount; ++i) all[i] += residual.residual()[i];
    EXPECT_EQ(all, came);
    EXPECT_NE(sent, came);
  }
}

}  // namespace
}  // namespace replicant::comm
