#include "learner/data/epoch_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

namespace replicant::data {
namespace {

std::vector<int64_t> Epoch(EpochOrder& order, int64_t epoch) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < order.size(); ++i) {
    indices.push_back(order.At(epoch * order.size() + i));
  }
  return indices;
}

TEST(EpochOrderTest, EveryEpochHasEachExampleOnceInAnOrderOfItsOwn) {
  EpochOrder order({10, 1, 30}, /*seed=*/3);
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<int64_t> indices = Epoch(order, epoch);
    orders.insert(indices);
    std::ranges::sort(indices);
    std::vector<int64_t> all(41);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(indices, all);
  }
  EXPECT_EQ(orders.size(), 5U);
}

TEST(EpochOrderTest, IsAFunctionOfSeedAndEpoch) {
  EpochOrder one({50}, 3), same({50}, 3), other({50}, 4);
  const std::vector<int64_t> last = Epoch(one, 7);
  EXPECT_EQ(Epoch(one, 0), Epoch(same, 0));
  EXPECT_EQ(last, Epoch(same, 7));
  EXPECT_NE(last, Epoch(other, 7));
}

TEST(EpochOrderTest, FewBlocksAreReadAtATime) {
  constexpr int64_t kBlock = 1000;
  EpochOrder order(std::vector<int64_t>(100, kBlock), /*seed=*/1);
  std::set<int64_t> blocks;
  for (int64_t i = 0; i < EpochOrder::kWindow; ++i) {
    blocks.insert(order.At(i) / kBlock);
  }
  EXPECT_EQ(blocks.size(), 9U);
  EXPECT_NE(*blocks.rbegin(), 8) << "the blocks are not shuffled";
}

}  // namespace
}  // namespace replicant::data
