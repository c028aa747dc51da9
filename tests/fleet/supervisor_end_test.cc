#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <vector>

#include "base/exit_codes.h"
#include "tests/fleet/supervisor_fixture.h"

// How a supervisor ends a run.
namespace replicant::fleet {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(SupervisorTest, TheLearnersEndCompletesTheRunAndAllDrainInOrder) {
  StartAll();
  Exit("learner-0", {0, 0});
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("term actor-0"));
  Beat(kActor, RoleState::kDraining);
  EXPECT_EQ(last_reply_, (BeatReply{BeatReply::Order::kStop,
                                    "learner-0 has completed the run"}));
  Pass(seconds(2));
  EXPECT_THAT(backend_.TakeEvents(), IsEmpty());
  Exit("actor-0", {0, 0});
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("term replay-0"));
  EXPECT_FALSE(supervisor_->IsFinished());
  Exit("replay-0", {0, 0});
  supervisor_->Step();
  ASSERT_TRUE(supervisor_->IsFinished());
  EXPECT_EQ(supervisor_->result().status, RunStatus::kComplete);
  EXPECT_TRUE(supervisor_->result().ok());
}

TEST_F(SupervisorTest, ARoleThatCompletesTheRunMaySayWhy) {
  StartAll();
  // what it waited for before is no reason
  Beat(kLearner, RoleState::kWaiting, "no data");
  Beat(kLearner, RoleState::kDraining, "step limit");
  Exit("learner-0", {0, 0});
  supervisor_->Step();
  supervisor_->StopNow("over");
  Pass(seconds(1));
  EXPECT_EQ(supervisor_->result().message,
            "learner-0 has completed the run: step limit");
}

// Would catch a run that ends at its time limit as if it had learned, from the
// first steps of actors that fail in every episode.
TEST_F(SupervisorTest, ARunWhoseActorsOnlyFailedIsNotComplete) {
  const auto end_of_run = [&](int num_failures, bool has_worked) {
    std::vector<RoleSpec> specs = Specs();
    specs[2].work_counter = "restored_groups";
    Make(specs);
    for (const RoleId& id : {kReplay, kLearner, kActor}) {
      supervisor_->Step();
      Beat(id);
    }
    if (has_worked) Beat(kActor, RoleState::kRunning, "", /*progress=*/1.0);
    supervisor_->Step();
    for (int i = 0; i < num_failures; ++i) {
      const auto roles = supervisor_->Roles();
      std::ofstream(folder_.LogFile(kActor, roles[2].incarnation))
          << "the reward is None\n";
      Exit("actor-0", {1, 0});
      Pass(seconds(5));
      Beat(kActor);
    }
    Exit("learner-0", {0, 0});
    supervisor_->Step();
    supervisor_->StopNow("over");
    Pass(seconds(1));
    return supervisor_->result();
  };
  EXPECT_EQ(end_of_run(1, false).status, RunStatus::kComplete);
  EXPECT_EQ(end_of_run(2, true).status, RunStatus::kComplete);
  const RunResult failed = end_of_run(2, false);
  EXPECT_EQ(failed.status, RunStatus::kFailed);
  EXPECT_THAT(failed.message,
              ::testing::MatchesRegex(
                  "actor-0: 2 failures and no restored_groups: exit code 1; "
                  ".* ends with:\n  the reward is None"));
}

// Would catch a full disk on which a run repeats its end until its restarts are
// spent.
TEST_F(SupervisorTest, ARoleThatIsDoneButCouldNotSaveIsNotRestarted) {
  StartAll();
  Beat(kLearner, RoleState::kDraining,
       "time limit; no checkpoint of step 9: x");
  Exit("learner-0", {kExitUnsaved, 0});
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("term actor-0"));
  Exit("actor-0", {0, 0});
  supervisor_->Step();
  Exit("replay-0", {0, 0});
  supervisor_->Step();
  ASSERT_TRUE(supervisor_->IsFinished());
  const RunResult result = supervisor_->result();
  EXPECT_EQ(result.status, RunStatus::kComplete);
  EXPECT_EQ(result.message,
            "learner-0 has completed the run: time limit; no checkpoint of "
            "step 9: x");
  EXPECT_FALSE(result.ok());
}

TEST_F(SupervisorTest, ARoleThatCouldNotSaveAtAStopSaysSo) {
  StartAll();
  supervisor_->RequestStop("asked to");
  supervisor_->Step();
  Exit("actor-0", {0, 0});
  supervisor_->Step();
  Beat(kLearner, RoleState::kDraining,
       "asked to stop; no checkpoint of step 9: x");
  Exit("learner-0", {kExitUnsaved, 0});
  supervisor_->Step();
  Exit("replay-0", {0, 0});
  supervisor_->Step();
  EXPECT_THAT(supervisor_->result().problems,
              ElementsAre("learner-0: asked to stop; no checkpoint of step 9: "
                          "x; see " +
                          folder_.LogFile(kLearner, 1).string()));
}

TEST_F(SupervisorTest, KillsWhatDoesNotDrainInTime) {
  StartAll();
  supervisor_->RequestStop("asked to");
  supervisor_->RequestStop("asked again");
  Pass(seconds(5));
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("term actor-0"));
  Pass(milliseconds(1000));
  EXPECT_THAT(backend_.TakeEvents(),
              ElementsAre("kill actor-0", "term learner-0"));
  Exit("learner-0", {4, 0});
  supervisor_->Step();
  Exit("replay-0", {0, 0});
  supervisor_->Step();
  ASSERT_TRUE(supervisor_->IsFinished());
  const RunResult result = supervisor_->result();
  EXPECT_EQ(result.status, RunStatus::kStopped);
  EXPECT_EQ(result.message, "asked to");
  EXPECT_FALSE(result.ok());
  EXPECT_THAT(
      result.problems,
      ElementsAre("actor-0: still running 5 s after the order to drain; see " +
                      folder_.LogFile(kActor, 1).string(),
                  "learner-0: exit code 4 while the run was stopped; see " +
                      folder_.LogFile(kLearner, 1).string()));
}

// A Ctrl-C while the processes are still being loaded is no failure.
TEST_F(SupervisorTest, ARoleThatWasStillStartingMayDieOfTheSignal) {
  Make();
  supervisor_->Step();
  supervisor_->RequestStop("asked to");
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(),
              ElementsAre("start replay-0", "term replay-0"));
  Exit("replay-0", {-1, SIGTERM});
  supervisor_->Step();
  ASSERT_TRUE(supervisor_->IsFinished());
  EXPECT_TRUE(supervisor_->result().ok());
}

TEST_F(SupervisorTest, StopsEverythingAtOnce) {
  StartAll();
  supervisor_->RequestStop("asked to");
  supervisor_->Step();
  supervisor_->StopNow("asked twice");
  EXPECT_THAT(backend_.TakeEvents(),
              ElementsAre("term actor-0", "kill replay-0", "kill learner-0",
                          "kill actor-0"));
  supervisor_->Step();
  ASSERT_TRUE(supervisor_->IsFinished());
  EXPECT_EQ(supervisor_->result().status, RunStatus::kStopped);
  EXPECT_THAT(supervisor_->result().problems, ElementsAre("asked twice"));
}

TEST_F(SupervisorTest, AStopLeavesWhatWasToBeStartedAlone) {
  StartAll();
  Exit("actor-0", {-1, SIGSEGV});
  supervisor_->Step();
  supervisor_->RequestStop("asked to");
  Pass(seconds(3));
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("term learner-0"));
  EXPECT_EQ(PhaseOf(kActor), RolePhase::kEnded);
}

TEST_F(SupervisorTest, AnEndWithSuccessIsAFailureUnlessItIsTheRolesEnd) {
  std::vector<RoleSpec> specs = Specs();
  specs[2].on_success = RoleSpec::OnSuccess::kDone;
  Make(specs);
  for (const RoleId& id : {kReplay, kLearner, kActor}) {
    supervisor_->Step();
    Beat(id);
  }
  Exit("actor-0", {0, 0});
  Exit("replay-0", {0, 0});
  supervisor_->Step();
  EXPECT_EQ(PhaseOf(kActor), RolePhase::kEnded);
  EXPECT_EQ(PhaseOf(kReplay), RolePhase::kBackingOff);
  EXPECT_FALSE(supervisor_->IsStopping());
}

}  // namespace
}  // namespace replicant::fleet
