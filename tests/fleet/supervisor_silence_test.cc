#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/fleet/supervisor_fixture.h"

// Silence of processes and of hosts.
namespace replicant::fleet {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(SupervisorTest, KillsARoleThatIsSilent) {
  StartAll();
  for (int i = 0; i < 10; ++i) {
    Pass(seconds(1));
    Beat(kReplay);
    Beat(kLearner);
  }
  EXPECT_THAT(backend_.TakeEvents(), IsEmpty());
  Pass(milliseconds(500));
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("kill actor-0"));
  supervisor_->Step();
  EXPECT_EQ(PhaseOf(kActor), RolePhase::kBackingOff);
  EXPECT_EQ(supervisor_->Roles()[2].last_failure,
            "no heartbeat for 10.5 s (fleet.heartbeat_timeout_s)");
  EXPECT_EQ(supervisor_->Roles()[2].num_failures, 1);
}

TEST_F(SupervisorTest, KillsARoleThatDoesNotGetReady) {
  Make();
  supervisor_->Step();
  for (int i = 0; i < 20; ++i) {
    Beat(kReplay, RoleState::kStarting, "reading the checkpoint");
    Pass(seconds(1));
  }
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("start replay-0"));
  Pass(seconds(1));
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("kill replay-0"));
  EXPECT_EQ(supervisor_->Roles()[0].last_failure,
            "not running 20 s after its start (fleet.start_timeout_s), "
            "but starting: reading the checkpoint");
}

// A large replay restores for longer than any fixed time.
TEST_F(SupervisorTest, AStartThatShowsProgressTakesAsLongAsItNeeds) {
  Make();
  supervisor_->Step();
  for (int i = 1; i <= 60; ++i) {
    Beat(kReplay, RoleState::kStarting, "restores the replay", i);
    Pass(seconds(1));
  }
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("start replay-0"));
  // and not for ever: it stands still
  for (int i = 0; i < 21; ++i) {
    Beat(kReplay, RoleState::kStarting, "restores the replay", 60);
    Pass(seconds(1));
  }
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("kill replay-0"));
  EXPECT_EQ(supervisor_->Roles()[0].last_failure,
            "not running 20 s after its last progress (fleet.start_timeout_s), "
            "but starting: restores the replay");
}

// Would catch a laptop that wakes up, or a supervisor that was stopped, and
// kills a healthy fleet.
TEST_F(SupervisorTest, ItsOwnSleepIsNotSilenceOfOthers) {
  StartAll();
  clock_.Advance(seconds(1000));
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(), IsEmpty());
  Pass(seconds(10));
  EXPECT_THAT(backend_.TakeEvents(), IsEmpty());
  Pass(seconds(1));
  EXPECT_THAT(backend_.TakeEvents(),
              ElementsAre("kill replay-0", "kill learner-0", "kill actor-0"));
}

// Would catch a run that waits for a host, or counts the loss of one.
TEST_F(SupervisorTest, AnElasticRoleWaitsForAHostAndOutlivesIt) {
  auto specs = Specs();
  specs[2].is_remote = specs[2].is_elastic = true;
  Make(specs);
  backend_.has_room = false;
  supervisor_->Step();
  Beat({"replay", 0});
  supervisor_->Step();
  Beat({"learner", 0});
  supervisor_->Step();
  EXPECT_TRUE(supervisor_->HasStarted());
  EXPECT_TRUE(supervisor_->Roles()[2].has_no_room);

  backend_.has_room = true;
  backend_.TakeEvents();
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("start actor-0"));
  Beat({"actor", 0});
  supervisor_->Step();
  // its host is lost
  backend_.states.at("actor-0")->is_lost = true;
  backend_.has_room = false;
  Exit("actor-0", {-1, SIGKILL});
  supervisor_->Step();
  EXPECT_EQ(supervisor_->Roles()[2].phase, RolePhase::kPending);
  EXPECT_EQ(supervisor_->Roles()[2].num_failures, 0);
  backend_.has_room = true;
  supervisor_->Step();
  EXPECT_EQ(supervisor_->Roles()[2].incarnation, 2u);
}

// Would catch a run that fails since a host left between the look for room and
// the start.
TEST_F(SupervisorTest, ARoleWaitsWhoseHostLeavesBeforeItsStart) {
  auto specs = Specs();
  specs[2].is_remote = specs[2].is_elastic = true;
  Make(specs);
  for (const RoleId& id : {kReplay, kLearner}) {
    supervisor_->Step();
    Beat(id);
  }
  backend_.loses_room = true;
  backend_.TakeEvents();
  supervisor_->Step();
  EXPECT_FALSE(supervisor_->IsStopping());
  EXPECT_EQ(PhaseOf(kActor), RolePhase::kPending);
  EXPECT_EQ(supervisor_->Roles()[2].num_failures, 0);
  EXPECT_THAT(backend_.TakeEvents(), IsEmpty());
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("start actor-0"));
}

// Would catch a supervisor that kills what it cannot hear.
TEST_F(SupervisorTest, ASilentHostIsNoSilenceOfItsRoles) {
  auto specs = Specs();
  specs[2].is_remote = specs[2].is_elastic = true;
  Make(specs);
  supervisor_->Step();
  const auto beat_others = [&] {
    Beat({"replay", 0});
    Beat({"learner", 0});
  };
  beat_others();
  supervisor_->Step();
  beat_others();
  supervisor_->Step();
  Beat({"actor", 0});
  supervisor_->Step();
  backend_.TakeEvents();
  backend_.states.at("actor-0")->is_reachable = false;
  for (int i = 0; i < 6; ++i) {
    Pass(seconds(5));
    beat_others();
  }
  backend_.states.at("actor-0")->is_reachable = true;
  Pass(seconds(5));
  beat_others();
  EXPECT_THAT(backend_.TakeEvents(), IsEmpty());
  // now it has had its time
  Pass(seconds(6));
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("kill actor-0"));
}

}  // namespace
}  // namespace replicant::fleet
