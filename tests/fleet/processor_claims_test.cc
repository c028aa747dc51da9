#include "fleet/processor_claims.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "fleet/placement.h"

namespace replicant::fleet {
namespace {

// A name that no other process uses.
std::string Name() { return "replicant-test-" + std::to_string(::getpid()); }

CpuTopology Cores(int count) {
  CpuTopology topology;
  for (int cpu = 0; cpu < count; ++cpu) {
    topology.processors.push_back({.cpu = cpu, .core = cpu});
  }
  return topology;
}

std::vector<RoleRequest> Roles(int learner_threads) {
  return {
      {.id = {"learner", 0}, .threads = learner_threads, .is_exclusive = true},
      {.id = {"replay", 0}, .load = 0.2},
      {.id = {"actor", 0}, .load = 0.8}};
}

std::string Text(const std::vector<PlacedRole>& placed) {
  std::string text;
  for (const PlacedRole& role : placed) {
    text += (text.empty() ? "" : " ") + role.request.id.ToString() + ":" +
            role.cpus.ToString();
  }
  return text;
}

TEST(ProcessorClaimsTest, AProcessorHasOneOwnerUntilItIsGivenBack) {
  ProcessorClaims first(Name());
  EXPECT_EQ(first.Claim(CpuSet({0, 1, 2})).ToString(), "0-2");
  {
    ProcessorClaims second(Name());
    EXPECT_EQ(second.Claim(CpuSet({1, 2, 3})).ToString(), "3");
    first.KeepOnly(CpuSet({0}));
    EXPECT_EQ(second.Claim(CpuSet({0, 1})).ToString(), "1,3");
    EXPECT_EQ(first.Claim(CpuSet({0, 1, 2, 3})).ToString(), "0,2");
  }
  EXPECT_EQ(first.Claim(CpuSet({1, 3})).ToString(), "0-3");
}

// Two fleets on one machine never bind roles to the same processors.
TEST(PlaceBesideOthersTest, ASecondFleetTakesTheProcessorsThatAreLeft) {
  ProcessorClaims first(Name()), second(Name()), third(Name());
  EXPECT_EQ(Text(PlaceBesideOthers(Cores(8), Roles(2), &first)),
            "learner-0:0-1 replay-0:2 actor-0:3");
  EXPECT_EQ(Text(PlaceBesideOthers(Cores(8), Roles(3), &second)),
            "learner-0:4-6 replay-0:7 actor-0:7");
  EXPECT_EQ(Text(PlaceBesideOthers(Cores(8), Roles(2), &third)),
            "learner-0: replay-0: actor-0:");
}

TEST(PlaceBesideOthersTest, WithoutEnoughProcessorsNoRoleIsBound) {
  ProcessorClaims first(Name());
  const CpuTopology machine = Cores(2);
  EXPECT_EQ(Text(PlaceBesideOthers(machine, Roles(4), &first)),
            "learner-0:0 replay-0:1 actor-0:1");
  ProcessorClaims second(Name());
  const auto placed = PlaceBesideOthers(machine, Roles(4), &second);
  EXPECT_EQ(PlacementTable(machine, placed),
            "processors 0-1 (2 cores)\n"
            "role           threads  processors\n"
            "learner-0            4  any: other fleets use this machine\n"
            "replay-0             1  any: other fleets use this machine\n"
            "actor-0              1  any: other fleets use this machine\n");
  first.KeepOnly({});
  EXPECT_EQ(Text(PlaceBesideOthers(machine, Roles(4), &second)),
            "learner-0:0 replay-0:1 actor-0:1");
}

}  // namespace
}  // namespace replicant::fleet
