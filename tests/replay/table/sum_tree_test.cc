#include "replay/table/sum_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "tests/support/message_of.h"

namespace replicant::replay {
namespace {

using replicant::testing::MessageOf;

using Weight = SumTree::Weight;

// The slot that a linear scan of the cumulative weights gives.
int64_t LinearFind(const std::vector<Weight>& weights, Weight target) {
  for (size_t slot = 0; slot < weights.size(); ++slot) {
    if (target < weights[slot]) return static_cast<int64_t>(slot);
    target -= weights[slot];
  }
  return -1;
}

// Mostly small numbers, a third zero, some at the limit.
Weight DrawWeight(RandomStream& random) {
  switch (random.UniformInt(6)) {
    case 0:
    case 1:
      return 0;
    case 2:
      return SumTree::kMaxWeight;
    case 3:
      return 1;
    default:
      return static_cast<Weight>(random.UniformInt(1000));
  }
}

// Catches a wrong child, a wrong rest and an update that misses a level:
// capacities lie around the powers of 16, where the number of levels changes.
TEST(SumTreeTest, AgreesWithALinearScanAfterRandomUpdates) {
  for (const int64_t capacity : {1, 2, 15, 16, 17, 255, 257, 4097}) {
    SCOPED_TRACE(::testing::Message() << "capacity=" << capacity);
    RandomStream random(static_cast<uint64_t>(capacity), "updates");
    SumTree tree(capacity);
    std::vector<Weight> model(static_cast<size_t>(capacity), 0);

    for (int round = 0; round < 50; ++round) {
      std::vector<int64_t> slots;
      std::vector<Weight> weights;
      for (int i = 0; i < 20; ++i) {
        slots.push_back(random.UniformInt(capacity));
        weights.push_back(DrawWeight(random));
        model[static_cast<size_t>(slots.back())] = weights.back();
      }
      tree.Set(slots, weights);
      const Weight total =
          std::accumulate(model.begin(), model.end(), Weight{0});
      ASSERT_EQ(tree.total(), total);
      if (total == 0) continue;

      // the ends of the range and whatever lies between
      std::vector<Weight> targets = {0, total - 1};
      for (int i = 0; i < 30; ++i) {
        targets.push_back(static_cast<Weight>(
            random.UniformInt(static_cast<int64_t>(total))));
      }
      std::vector<int64_t> found(targets.size());
      tree.Find(targets, found);
      for (size_t i = 0; i < targets.size(); ++i) {
        ASSERT_EQ(found[i], LinearFind(model, targets[i]));
        ASSERT_GT(tree.weight(found[i]), 0u);
      }
    }
    for (int64_t slot = 0; slot < capacity; ++slot) {
      ASSERT_EQ(tree.weight(slot), model[static_cast<size_t>(slot)]);
    }
  }
}

// Catches drift: rounding, or a sum that is changed by something else than
// what the leaf changed by.
TEST(SumTreeTest, IsEmptyAgainAfterAMillionUpdates) {
  constexpr int64_t kCapacity = 1000;
  RandomStream random(3, "drift");
  SumTree tree(kCapacity);
  for (int i = 0; i < 1'000'000; ++i) {
    tree.Set(random.UniformInt(kCapacity),
             static_cast<Weight>(random.UniformInt(1 << 30)));
  }
  EXPECT_GT(tree.total(), 0u);
  for (int64_t slot = 0; slot < kCapacity; ++slot) tree.Set(slot, 0);
  EXPECT_EQ(tree.total(), 0u);
  tree.Set(kCapacity - 1, 1);
  EXPECT_EQ(tree.Find(0), kCapacity - 1);
}

// Catches an overflow of the signed sums.
TEST(SumTreeTest, HoldsTheLargestCapacityAtTheLargestWeight) {
  SumTree tree(SumTree::kMaxCapacity);
  std::vector<int64_t> slots(1 << 16);
  const std::vector<Weight> weights(slots.size(), SumTree::kMaxWeight);
  for (int64_t base = 0; base < SumTree::kMaxCapacity; base += 1 << 16) {
    std::iota(slots.begin(), slots.end(), base);
    tree.Set(slots, weights);
  }
  const auto capacity = static_cast<Weight>(SumTree::kMaxCapacity);
  EXPECT_EQ(tree.total(), capacity * SumTree::kMaxWeight);
  EXPECT_EQ(tree.Find(tree.total() - 1), SumTree::kMaxCapacity - 1);
  EXPECT_EQ(tree.Find(tree.total() / 2), SumTree::kMaxCapacity / 2);
}

TEST(SumTreeTest, OfARepeatedSlotTheLastWeightCounts) {
  SumTree tree(20);
  tree.Set(std::vector<int64_t>{7, 3, 7}, std::vector<Weight>{5, 1, 2});
  EXPECT_EQ(tree.weight(7), 2u);
  EXPECT_EQ(tree.total(), 3u);
}

// Runs `trial` once for every instruction set that was compiled and that this
// machine has, and expects the same result from each.
TEST(SumTreeTest, EveryInstructionSetGivesTheSameSlots) {
  const int64_t all = hwy::SupportedTargets();
  std::vector<std::vector<int64_t>> results;
  for (int64_t rest = all; rest != 0; rest &= rest - 1) {
    hwy::SetSupportedTargetsForTest(rest & -rest);
    hwy::GetChosenTarget().DeInit();
    RandomStream random(11, "targets");
    SumTree tree(70'000);
    for (int i = 0; i < 20'000; ++i) {
      tree.Set(random.UniformInt(tree.capacity()), DrawWeight(random));
    }
    std::vector<Weight> targets(1000);
    for (Weight& target : targets) target = random() % tree.total();
    results.emplace_back(targets.size());
    tree.Find(targets, results.back());
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
  ASSERT_GE(results.size(), 2u) << "this machine has a single instruction set";
  for (const auto& result : results) EXPECT_EQ(result, results.front());
}

TEST(SumTreeTest, DrawsInProportionToTheWeights) {
  constexpr int kDraws = 200'000;
  const std::vector<Weight> weights = {5, 0, 1, 10, 0, 0, 3, 1};
  SumTree tree(static_cast<int64_t>(weights.size()));
  for (size_t i = 0; i < weights.size(); ++i) {
    tree.Set(static_cast<int64_t>(i), weights[i]);
  }
  RandomStream random(20190201, "draws");
  std::vector<int> counts(weights.size(), 0);
  for (int i = 0; i < kDraws; ++i) {
    const auto target = random.UniformInt(static_cast<int64_t>(tree.total()));
    ++counts[static_cast<size_t>(tree.Find(static_cast<Weight>(target)))];
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const double p = static_cast<double>(weights[i]) / 20.0;
    // five standard deviations of a binomial count
    EXPECT_NEAR(counts[i], kDraws * p, 5.0 * std::sqrt(kDraws * p * (1.0 - p)))
        << "slot " << i;
  }
}

TEST(SumTreeTest, RefusesBadInputAndKeepsItsState) {
  EXPECT_EQ(MessageOf<InvalidArgument>([] { SumTree(0); }),
            "SumTree: capacity 0 is outside [1, 16777216]");
  SumTree tree(2);
  tree.Set(0, 3);
  using Slots = std::vector<int64_t>;
  using Weights = std::vector<Weight>;
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              tree.Set(Slots{1, 2}, Weights{1, 1});
            }),
            "SumTree::Set: slot 2 is outside [0, 2)");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              tree.Set(Slots{1}, Weights{1, 2});
            }),
            "SumTree::Set: 1 slots, but 2 weights");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              tree.Set(Slots{1, 0}, Weights{1, SumTree::kMaxWeight + 1});
            }),
            "SumTree::Set: weight 274877906944 is above 274877906943");
  EXPECT_EQ(tree.total(), 3u);
}

TEST(SumTreeDeathTest, FindOnAnEmptyTreeAborts) {
  EXPECT_DEATH(SumTree(4).Find(0), "target < total\\(\\)");
}

}  // namespace
}  // namespace replicant::replay
