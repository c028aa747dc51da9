#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/fleet/supervisor_fixture.h"
#include "tests/support/log_lines.h"

// Elastic groups of a supervisor.
namespace replicant::fleet {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// learner-0, worker-1 and worker-2
class SupervisorGroupTest : public SupervisorTest {
 protected:
  static std::vector<RoleSpec> GroupSpecs(int min_size) {
    std::vector<RoleSpec> specs = {Specs()[1]};
    specs[0].first_arguments = specs[0].resume_arguments = {};
    for (uint32_t i = 1; i <= 2; ++i) {
      specs.push_back({.id = {"worker", i},
                       .command = {"worker"},
                       .start_stage = 1,
                       .stop_stage = 1,
                       .on_success = RoleSpec::OnSuccess::kDone,
                       .restart = {.initial_backoff_s = 2.0,
                                   .jitter = 0.0,
                                   .budget = 1,
                                   .window_s = 100.0}});
    }
    for (RoleSpec& spec : specs) {
      spec.min_group_size = min_size;
      spec.group_arguments = [](int rank, int size) {
        return std::vector<std::string>{std::to_string(rank) + "/" +
                                        std::to_string(size)};
      };
    }
    return specs;
  }
  void BeatAll() {
    for (const auto& role : supervisor_->Roles()) {
      if (role.phase == RolePhase::kStarting) Beat(role.id);
    }
    supervisor_->Step();
  }
  void StartGroup(int min_size) {
    Make(GroupSpecs(min_size));
    supervisor_->Step();
    BeatAll();
    ASSERT_THAT(
        backend_.TakeEvents(),
        ElementsAre("start learner-0", "start worker-1", "start worker-2"));
  }
  std::string PlaceOf(const std::string& name) {
    return backend_.last_options.at(name).command.back();
  }
  // worker-1 is killed, and the others end because of that.
  void LoseWorker1() {
    Exit("worker-1", {-1, SIGKILL});
    supervisor_->Step();
    for (const char* other : {"learner-0", "worker-2"}) {
      Exit(other, {kExitPeerLost, 0});
    }
    supervisor_->Step();
  }
  void LeaveWorker1Out() {
    LoseWorker1();
    Pass(seconds(3));
    BeatAll();
    LoseWorker1();
    supervisor_->Step();
    BeatAll();
    backend_.TakeEvents();
  }

  const RoleId kWorker1 = {"worker", 1}, kWorker2 = {"worker", 2};
};

TEST_F(SupervisorGroupTest, StartsAgainAsAWholeAndCountsTheOneThatFailed) {
  StartGroup(/*min_size=*/2);
  EXPECT_EQ(PlaceOf("learner-0"), "0/3");
  EXPECT_EQ(PlaceOf("worker-2"), "2/3");
  Exit("worker-1", {-1, SIGKILL});
  Pass(seconds(4));
  // until the last one has ended
  EXPECT_THAT(backend_.TakeEvents(), IsEmpty());
  Exit("learner-0", {kExitPeerLost, 0});
  Exit("worker-2", {kExitPeerLost, 0});
  supervisor_->Step();
  EXPECT_THAT(
      backend_.TakeEvents(),
      ElementsAre("start learner-0", "start worker-1", "start worker-2"));
  EXPECT_EQ(PlaceOf("worker-2"), "2/3");
  EXPECT_EQ(supervisor_->Roles()[0].num_failures, 0);
  EXPECT_EQ(supervisor_->Roles()[1].num_failures, 1);
}

TEST_F(SupervisorGroupTest, GoesOnWithoutAMemberThatStaysLost) {
  StartGroup(/*min_size=*/2);
  LeaveWorker1Out();
  EXPECT_EQ(PhaseOf(kWorker1), RolePhase::kLeftOut);
  EXPECT_EQ(PhaseOf(kLearner), RolePhase::kReady);
  EXPECT_EQ(PlaceOf("learner-0"), "0/2");
  EXPECT_EQ(PlaceOf("worker-2"), "1/2");
  EXPECT_TRUE(supervisor_->HasStarted());
}

TEST_F(SupervisorGroupTest, GrowsWhenTheMemberMayStartAgain) {
  StartGroup(/*min_size=*/2);
  LeaveWorker1Out();
  // the first failure leaves the window 100 s after it
  for (int i = 0; i < 96; ++i) {
    Pass(seconds(1));
    Beat(kLearner);
    Beat(kWorker2);
  }
  EXPECT_EQ(last_reply_.order, BeatReply::Order::kGoOn);
  Pass(seconds(2));
  Beat(kLearner);
  EXPECT_EQ(last_reply_.order, BeatReply::Order::kStop);
  EXPECT_THAT(backend_.TakeEvents(), IsEmpty());
  // success is no end of the run now
  Exit("worker-2", {0, 0});
  Exit("learner-0", {0, 0});
  supervisor_->Step();
  EXPECT_FALSE(supervisor_->IsStopping());
  EXPECT_THAT(
      backend_.TakeEvents(),
      ElementsAre("start learner-0", "start worker-1", "start worker-2"));
  EXPECT_EQ(PlaceOf("worker-1"), "1/3");
  BeatAll();
  Exit("learner-0", {0, 0});
  supervisor_->Step();
  EXPECT_TRUE(supervisor_->IsStopping());
}

TEST_F(SupervisorGroupTest, AGroupThatIsTooSmallEndsTheRun) {
  StartGroup(/*min_size=*/3);
  const testing::LogLines log;
  LeaveWorker1Out();
  EXPECT_TRUE(supervisor_->IsStopping());
  EXPECT_THAT(
      log.lines(),
      ::testing::Contains(
          "without worker-1 its group has 2 members; at least 3 are needed"));
}

TEST_F(SupervisorGroupTest, KillsAMemberThatDoesNotEndWithItsGroup) {
  StartGroup(/*min_size=*/2);
  Exit("worker-1", {-1, SIGKILL});
  supervisor_->Step();
  Exit("learner-0", {kExitPeerLost, 0});
  Pass(seconds(9));
  EXPECT_THAT(backend_.TakeEvents(), IsEmpty());
  Pass(seconds(2));
  EXPECT_THAT(backend_.TakeEvents(),
              ElementsAre("kill worker-2", "start learner-0", "start worker-1",
                          "start worker-2"));
  EXPECT_EQ(supervisor_->Roles()[2].num_failures, 0);
}

TEST_F(SupervisorGroupTest, AnEndThatNobodyExplainsCountsForTheLeader) {
  StartGroup(/*min_size=*/2);
  for (int i = 0; i < 3; ++i) {
    for (const char* name : {"learner-0", "worker-1", "worker-2"}) {
      Exit(name, {kExitPeerLost, 0});
    }
    Pass(seconds(9));
  }
  EXPECT_EQ(supervisor_->Roles()[0].num_failures, 3);
  EXPECT_TRUE(supervisor_->IsStopping());
}

// Would catch a learner that waits in vain for a worker without a host, or a
// lost host that is counted as a failure.
TEST_F(SupervisorGroupTest, AGroupWaitsForTheHostsOfItsMembers) {
  std::vector<RoleSpec> specs = GroupSpecs(/*min_size=*/3);
  specs[2].is_remote = true;
  backend_.has_room = false;
  Make(std::move(specs));
  Pass(seconds(60));
  EXPECT_THAT(backend_.TakeEvents(), IsEmpty());
  backend_.has_room = true;
  Pass(seconds(1));
  BeatAll();
  EXPECT_THAT(
      backend_.TakeEvents(),
      ElementsAre("start learner-0", "start worker-1", "start worker-2"));

  backend_.has_room = false;
  backend_.states.at("worker-2")->is_lost = true;
  Exit("worker-2", {-1, SIGKILL});
  supervisor_->Step();
  for (const char* other : {"learner-0", "worker-1"}) {
    Exit(other, {kExitPeerLost, 0});
  }
  Pass(seconds(60));
  EXPECT_THAT(backend_.TakeEvents(), IsEmpty());
  for (const auto& role : supervisor_->Roles()) {
    EXPECT_EQ(role.num_failures, 0) << role.id.ToString();
  }
  backend_.has_room = true;
  Pass(seconds(1));
  EXPECT_THAT(
      backend_.TakeEvents(),
      ElementsAre("start learner-0", "start worker-1", "start worker-2"));
  EXPECT_EQ(PlaceOf("worker-2"), "2/3");
}

// Would catch a run that fails, or a learner that waits in vain, since a host
// left between the look for room and the start.
TEST_F(SupervisorGroupTest, AGroupStartsAgainWithoutAHostThatLeftTooEarly) {
  std::vector<RoleSpec> specs = GroupSpecs(/*min_size=*/3);
  specs[2].is_remote = true;
  backend_.loses_room = true;
  Make(std::move(specs));
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(),
              ElementsAre("start learner-0", "start worker-1"));
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(),
              ElementsAre("kill learner-0", "kill worker-1"));
  supervisor_->Step();
  EXPECT_THAT(
      backend_.TakeEvents(),
      ElementsAre("start learner-0", "start worker-1", "start worker-2"));
  EXPECT_FALSE(supervisor_->IsStopping());
  for (const auto& role : supervisor_->Roles()) {
    EXPECT_EQ(role.num_failures, 0) << role.id.ToString();
  }
}

}  // namespace
}  // namespace replicant::fleet
