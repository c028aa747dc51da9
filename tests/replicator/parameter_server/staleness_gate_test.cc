#include "replicator/parameter_server/staleness_gate.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace replicant::replicator {
namespace {

// Whatever workers do, no push is staler than allowed, and there is always one
// that may go on. The model counts pushes by itself.
TEST(StalenessGateTest, NeverExceedsItsLimitAndNeverBlocksEverybody) {
  for (const int64_t limit : {0, 1, 2, 5, 100}) {
    SCOPED_TRACE(limit);
    std::mt19937 random(static_cast<uint32_t>(7 + limit));
    StalenessGate gate(limit);
    constexpr uint32_t kWorkers = 6;
    std::map<uint32_t, int64_t> pulled_at;
    int64_t num_pushes = 0;
    int64_t largest = 0;
    for (int i = 0; i < 3000; ++i) {
      std::vector<uint32_t> movable;
      for (uint32_t w = 0; w < kWorkers; ++w) {
        if (gate.Has(w) ? gate.CanPush(w) : gate.CanPull()) {
          movable.push_back(w);
        }
      }
      ASSERT_FALSE(movable.empty());
      // mostly the last ones, so that the others are slow
      const uint32_t w = random() % 8 != 0 ? movable.back()
                                           : movable[random() % movable.size()];
      ASSERT_EQ(gate.Has(w), pulled_at.contains(w));
      if (gate.Has(w) && random() % 50 == 0) {
        gate.Drop(w);
        pulled_at.erase(w);
      } else if (gate.Has(w)) {
        const int64_t staleness = gate.Push(w);
        EXPECT_EQ(staleness, num_pushes - pulled_at.at(w));
        EXPECT_LE(staleness, limit);
        largest = std::max(largest, staleness);
        pulled_at.erase(w);
        ++num_pushes;
      } else {
        gate.Pull(w);
        pulled_at[w] = num_pushes;
      }
      ASSERT_EQ(gate.version(), num_pushes);
      ASSERT_EQ(gate.IsEmptyBut(/*worker=*/1000), pulled_at.empty());
    }
    // the limit is used, and not only kept
    if (limit < 10) {
      EXPECT_EQ(largest, limit);
    }
  }
}

TEST(StalenessGateTest, WithoutStalenessWorkersTakeTurns) {
  StalenessGate gate(0);
  ASSERT_TRUE(gate.CanPull());
  gate.Pull(0);
  EXPECT_FALSE(gate.CanPull());
  EXPECT_TRUE(gate.CanPush(0));
  EXPECT_EQ(gate.Push(0), 0);
  EXPECT_TRUE(gate.CanPull());
}

TEST(StalenessGateTest, AFastWorkerWaitsForASlowOne) {
  StalenessGate gate(2, /*version=*/10);
  gate.Pull(0);
  for (int i = 0; i < 2; ++i) {
    gate.Pull(1);
    ASSERT_TRUE(gate.CanPush(1));
    EXPECT_EQ(gate.Push(1), 0);
  }
  gate.Pull(1);
  EXPECT_FALSE(gate.CanPush(1));
  EXPECT_EQ(gate.Push(0), 2);
  EXPECT_TRUE(gate.CanPush(1));
  EXPECT_EQ(gate.Push(1), 1);
  EXPECT_EQ(gate.version(), 14);
}

TEST(StalenessGateTest, AWorkerThatIsDroppedHoldsNobodyUp) {
  StalenessGate gate(0);
  gate.Pull(0);
  gate.Drop(0);
  EXPECT_TRUE(gate.CanPull());
  EXPECT_FALSE(gate.Has(0));
}

TEST(StalenessGateDeathTest, RefusesWhatItDoesNotAllow) {
  StalenessGate gate(0);
  EXPECT_DEATH(gate.Push(0), "worker 0 has not pulled");
  gate.Pull(0);
  EXPECT_DEATH(gate.Pull(1), "worker 1 may not pull");
}

}  // namespace
}  // namespace replicant::replicator
