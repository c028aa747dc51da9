#include "fleet/placement.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "base/rng.h"
#include "tests/support/message_of.h"

namespace replicant::fleet {
namespace {

using replicant::testing::MessageOf;

CpuTopology Cores(int count) {
  CpuTopology topology;
  for (int cpu = 0; cpu < count; ++cpu) {
    topology.processors.push_back({.cpu = cpu, .core = cpu});
  }
  return topology;
}

// The roles of one machine's run.
std::vector<RoleRequest> Roles(uint32_t num_actors, int learner_threads) {
  std::vector<RoleRequest> requests = {
      {.id = {"replay", 0}, .load = 0.25},
      {.id = {"learner", 0}, .threads = learner_threads, .is_exclusive = true}};
  for (uint32_t i = 0; i < num_actors; ++i) {
    requests.push_back({.id = {"actor", i}});
  }
  requests.push_back({.id = {"evaluator", 0}, .load = 0.25});
  return requests;
}

std::string Text(const std::vector<PlacedRole>& placed) {
  std::string text;
  for (const PlacedRole& role : placed) {
    text += (text.empty() ? "" : " ") + role.request.id.ToString() + ":" +
            role.cpus.ToString();
  }
  return text;
}

TEST(PlacementTest, OnTwoProcessorsTheLearnerHasOne) {
  EXPECT_EQ(Text(Place(Cores(2), Roles(2, 0))),
            "replay-0:1 learner-0:0 actor-0:1 actor-1:1 evaluator-0:1");
  EXPECT_EQ(Text(Place(Cores(2), Roles(2, 4))),
            Text(Place(Cores(2), Roles(2, 0))));
}

TEST(PlacementTest, OnOneProcessorEverythingIsShared) {
  EXPECT_EQ(Text(Place(Cores(1), Roles(1, 2))),
            "replay-0:0 learner-0:0 actor-0:0 evaluator-0:0");
}

TEST(PlacementTest, TheLearnerTakesWhatTheOthersLeave) {
  // load of the others: 3 + 0.5, so 4 of 8
  EXPECT_EQ(Text(Place(Cores(8), Roles(3, 0))),
            "replay-0:4 learner-0:0-3 actor-0:5 actor-1:6 actor-2:7 "
            "evaluator-0:4");
  // a wish is followed even where the actors then share
  EXPECT_EQ(Text(Place(Cores(4), Roles(4, 3))),
            "replay-0:3 learner-0:0-2 actor-0:3 actor-1:3 actor-2:3 actor-3:3 "
            "evaluator-0:3");
}

TEST(PlacementTest, TheQuotaBoundsWhatIsUsed) {
  CpuTopology topology = Cores(64);
  topology.quota = 2.9;
  EXPECT_EQ(Text(Place(topology, Roles(1, 8))),
            "replay-0:1 learner-0:0 actor-0:1 evaluator-0:1");
}

TEST(PlacementTest, CoresAreUsedBeforeTheirSecondThreads) {
  CpuTopology topology;
  // the order of ReadCpuTopology()
  for (const int cpu : {0, 1, 2, 3, 4, 5, 6, 7}) {
    topology.processors.push_back({.cpu = cpu, .core = cpu % 4});
  }
  EXPECT_EQ(Text(Place(topology, Roles(3, 1))),
            "replay-0:1 learner-0:0 actor-0:2 actor-1:3 actor-2:4 "
            "evaluator-0:5");
}

TEST(PlacementTest, TwoLearnersHaveOneEachOrShare) {
  std::vector<RoleRequest> requests = {
      {.id = {"learner", 0}, .threads = 0, .is_exclusive = true},
      {.id = {"learner", 1}, .threads = 0, .is_exclusive = true},
      {.id = {"actor", 0}}};
  EXPECT_EQ(Text(Place(Cores(3), requests)),
            "learner-0:0 learner-1:1 actor-0:2");
  EXPECT_EQ(Text(Place(Cores(2), requests)),
            "learner-0:0 learner-1:1 actor-0:0");
  // nobody else: all of them, in equal parts
  requests.pop_back();
  EXPECT_EQ(Text(Place(Cores(5), requests)), "learner-0:0-1 learner-1:2-4");
}

// Properties, over random machines and fleets.
TEST(PlacementTest, EveryRoleHasProcessorsAndExclusiveOnesTheirOwn) {
  RandomStream random(20190201, "placement");
  for (int i = 0; i < 500; ++i) {
    const auto count = 1 + static_cast<int>(random.UniformInt(12));
    std::vector<RoleRequest> requests;
    int num_exclusive = 0, num_shared = 0;
    const auto num_roles = static_cast<uint32_t>(1 + random.UniformInt(8));
    for (uint32_t r = 0; r < num_roles; ++r) {
      const bool is_exclusive = random.UniformInt(3) == 0;
      (is_exclusive ? num_exclusive : num_shared) += 1;
      requests.push_back({.id = {"r", r},
                          .threads = static_cast<int>(random.UniformInt(5)) +
                                     (is_exclusive ? 0 : 1),
                          .is_exclusive = is_exclusive});
    }
    const auto placed = Place(Cores(count), requests);
    SCOPED_TRACE(std::to_string(count) + " processors: " + Text(placed));
    ASSERT_EQ(placed.size(), requests.size());
    std::multiset<int> used;
    for (const PlacedRole& role : placed) {
      ASSERT_FALSE(role.cpus.empty());
      if (role.request.threads > 0) {
        ASSERT_LE(role.cpus.size(), role.request.threads);
      }
      for (const int cpu : role.cpus.cpus()) {
        ASSERT_LT(cpu, count);
        used.insert(cpu);
      }
    }
    if (count < num_exclusive + (num_shared > 0 ? 1 : 0)) continue;
    for (const PlacedRole& role : placed) {
      if (!role.request.is_exclusive) continue;
      for (const int cpu : role.cpus.cpus()) ASSERT_EQ(used.count(cpu), 1u);
    }
  }
}

TEST(PlacementTest, TheTableShowsWhatWasWantedAndGiven) {
  CpuTopology topology = Cores(2);
  topology.quota = 2.5;
  EXPECT_EQ(PlacementTable(topology, Place(topology, Roles(1, 4))),
            "processors 0-1 (2 cores, quota of 2.5)\n"
            "role           threads  processors\n"
            "replay-0             1  1\n"
            "learner-0       1 of 4  0\n"
            "actor-0              1  1\n"
            "evaluator-0          1  1\n");
}

TEST(PlacementTest, RefusesRolesWithoutThreads) {
  EXPECT_EQ(MessageOf<InvalidArgument>([] {
              Place(Cores(2), {{.id = {"actor", 1}, .threads = 0}});
            }),
            "placement of actor-1: threads must be >= 1, got 0");
  EXPECT_EQ(
      MessageOf<InvalidArgument>([] {
        Place(Cores(2),
              {{.id = {"learner", 0}, .threads = -1, .is_exclusive = true}});
      }),
      "placement of learner-0: threads must be >= 0, got -1");
}

}  // namespace
}  // namespace replicant::fleet
