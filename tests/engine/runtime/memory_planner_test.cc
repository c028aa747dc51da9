#include "engine/runtime/memory_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"

namespace replicant::runtime {
namespace {

TEST(MemoryPlannerTest, BlocksThatDoNotMeetShareMemory) {
  const std::vector<Lifetime> blocks = {
      {.size_bytes = 100, .first_step = 0, .last_step = 1},
      {.size_bytes = 100, .first_step = 2, .last_step = 3}};
  const MemoryPlan plan = PlanMemory(blocks, /*alignment=*/64);
  EXPECT_EQ(plan.offsets, (std::vector<size_t>{0, 0}));
  EXPECT_EQ(plan.arena_size_bytes, 128U);
  EXPECT_EQ(plan.unshared_size_bytes, 256U);
  EXPECT_EQ(plan.lower_bound_bytes, 128U);
}

// A step's output may not lie in the memory of its input.
TEST(MemoryPlannerTest, BlocksThatMeetInOneStepDoNotOverlap) {
  const std::vector<Lifetime> blocks = {
      {.size_bytes = 64, .first_step = 0, .last_step = 1},
      {.size_bytes = 64, .first_step = 1, .last_step = 2}};
  const MemoryPlan plan = PlanMemory(blocks, /*alignment=*/64);
  EXPECT_NE(plan.offsets[0], plan.offsets[1]);
  EXPECT_EQ(plan.arena_size_bytes, 128U);
}

TEST(MemoryPlannerTest, NothingNeedsNothing) {
  EXPECT_EQ(PlanMemory({}, 64).arena_size_bytes, 0U);
  const std::vector<Lifetime> blocks = {{.size_bytes = 0}};
  EXPECT_EQ(PlanMemory(blocks, 64).offsets, (std::vector<size_t>{0}));
}

// Property: whatever the blocks, none that live at one time overlap, all are
// aligned and inside the arena, and the arena is between its bounds.
TEST(MemoryPlannerTest, RandomPlansAreValid) {
  RandomStream random(7, "memory_planner_test");
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(::testing::Message() << "round " << round);
    std::vector<Lifetime> blocks;
    const int64_t count = 1 + random.UniformInt(60);
    for (int64_t i = 0; i < count; ++i) {
      const auto first = static_cast<int32_t>(random.UniformInt(40));
      const auto length = static_cast<int32_t>(random.UniformInt(8));
      blocks.push_back(
          {.size_bytes = static_cast<size_t>(random.UniformInt(5000)),
           .first_step = first,
           .last_step = first + length});
    }
    const MemoryPlan plan = PlanMemory(blocks, /*alignment=*/64);
    EXPECT_GE(plan.arena_size_bytes, plan.lower_bound_bytes);
    EXPECT_LE(plan.arena_size_bytes, plan.unshared_size_bytes);
    for (size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(plan.offsets[i] % 64, 0U);
      EXPECT_LE(plan.offsets[i] + blocks[i].size_bytes, plan.arena_size_bytes);
      for (size_t j = 0; j < i; ++j) {
        const bool meet_in_time = blocks[i].first_step <= blocks[j].last_step &&
                                  blocks[j].first_step <= blocks[i].last_step;
        const bool meet_in_space =
            plan.offsets[i] < plan.offsets[j] + blocks[j].size_bytes &&
            plan.offsets[j] < plan.offsets[i] + blocks[i].size_bytes;
        EXPECT_FALSE(meet_in_time && meet_in_space) << i << " and " << j;
      }
    }
  }
}

TEST(MemoryPlannerDeathTest, ALifetimeThatEndsBeforeItBeginsAborts) {
  const std::vector<Lifetime> blocks = {
      {.size_bytes = 1, .first_step = 2, .last_step = 1}};
  EXPECT_DEATH(PlanMemory(blocks, 64), "2 vs 1");
}

}  // namespace
}  // namespace replicant::runtime
