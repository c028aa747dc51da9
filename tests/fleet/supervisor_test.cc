#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "base/exit_codes.h"
#include "tests/fleet/supervisor_fixture.h"
#include "tests/support/log_lines.h"
#include "tests/support/message_of.h"

namespace replicant::fleet {
namespace {

using replicant::testing::MessageOf;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(SupervisorTest, StartsAStageOnceTheOneBeforeRuns) {
  Make();
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("start replay-0"));
  Beat(kReplay, RoleState::kStarting);
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(), IsEmpty());
  EXPECT_EQ(PhaseOf(kReplay), RolePhase::kStarting);
  Beat(kReplay);
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("start learner-0"));
  // a learner that waits for data runs: there will be none without actors
  Beat(kLearner, RoleState::kWaiting, "no data");
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("start actor-0"));
  EXPECT_EQ(PhaseOf(kLearner), RolePhase::kReady);
  EXPECT_EQ(supervisor_->result().status, RunStatus::kRunning);
}

TEST_F(SupervisorTest, GivesAProcessItsPlaceItsLogAndItsName) {
  StartAll();
  const ProcessOptions& options = backend_.last_options.at("learner-0");
  EXPECT_THAT(options.command,
              ElementsAre("learner", "--config", "x", "--from", "7"));
  EXPECT_THAT(options.environment,
              ElementsAre("A=b", "REPLICANT_SUPERVISOR=tcp://x",
                          "REPLICANT_KEY_FILE=", "REPLICANT_ROLE=learner",
                          "REPLICANT_ROLE_INDEX=0", "REPLICANT_INCARNATION=1"));
  EXPECT_EQ(options.cpus, CpuSet({0}));
  EXPECT_EQ(options.stdout_file, folder_.LogFile(kLearner, 1));
  EXPECT_EQ(options.stderr_file, options.stdout_file);
}

TEST_F(SupervisorTest, StartsARoleThatFailedAgainAfterAPause) {
  StartAll();
  Exit("learner-0", {3, 0});
  supervisor_->Step();
  EXPECT_EQ(PhaseOf(kLearner), RolePhase::kBackingOff);
  EXPECT_EQ(supervisor_->Roles()[1].last_failure, "exit code 3");
  EXPECT_EQ(supervisor_->Roles()[1].backoff_s, 2.0);
  Pass(milliseconds(1500));
  EXPECT_THAT(backend_.TakeEvents(), IsEmpty());
  Pass(milliseconds(500));
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("start learner-0"));
  const ProcessOptions& options = backend_.last_options.at("learner-0");
  EXPECT_THAT(options.command,
              ElementsAre("learner", "--config", "x", "--resume"));
  EXPECT_EQ(options.environment.back(), "REPLICANT_INCARNATION=2");
  EXPECT_EQ(options.stdout_file, folder_.LogFile(kLearner, 2));
  // what the first one said does not count for the second
  supervisor_->Step();
  EXPECT_EQ(PhaseOf(kLearner), RolePhase::kStarting);
  Beat(kLearner);
  supervisor_->Step();
  EXPECT_EQ(PhaseOf(kLearner), RolePhase::kReady);
}

TEST_F(SupervisorTest, ARoleBeginsWhereItWasToldUntilItHasRun) {
  Make();
  supervisor_->Step();
  Beat(kReplay);
  supervisor_->Step();
  Exit("learner-0", {3, 0});
  Pass(seconds(3));
  const ProcessOptions& options = backend_.last_options.at("learner-0");
  EXPECT_EQ(options.environment.back(), "REPLICANT_INCARNATION=2");
  EXPECT_THAT(options.command, ElementsAre("learner", "--config", "x",
                                           "--resume", "--from", "7"));
}

TEST_F(SupervisorTest, ARoleWithoutBudgetEndsTheRunWithItsLog) {
  StartAll();
  for (int i = 0; i < 2; ++i) {
    Exit("actor-0", {3, 0});
    Pass(seconds(5));
    Beat(kActor);
  }
  backend_.TakeEvents();
  const std::string log = folder_.LogFile(kActor, 3);
  std::ofstream(log) << "first line\nactor: no such task 'wlaker'\n";
  Exit("actor-0", {1, 0});
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("term learner-0"));
  Exit("learner-0", {0, 0});
  Pass(seconds(1));
  Exit("replay-0", {0, 0});
  supervisor_->Step();
  ASSERT_TRUE(supervisor_->IsFinished());
  const RunResult result = supervisor_->result();
  EXPECT_EQ(result.status, RunStatus::kFailed);
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.message,
            "actor-0: exit code 1, after all 2 restarts allowed in 600 s; " +
                log +
                " ends with:\n  first line\n"
                "  actor: no such task 'wlaker'");
  EXPECT_THAT(result.problems, IsEmpty());
}

// Would catch five restarts of a learner whose device does not exist, and a
// missing device that no other host is to start again.
TEST_F(SupervisorTest, ARoleThatCannotRunIsTriedOnce) {
  uint32_t incarnation = 0;
  for (const auto& [code, why, is_mistake] :
       {std::tuple(kExitConfig,
                   "exit code 78; a restart cannot help, change "
                   "the configuration; ",
                   true),
        std::tuple(kExitDevice,
                   "exit code 69; a restart cannot help, another "
                   "host may have the device; ",
                   false)}) {
    Make();
    supervisor_->Step();
    Beat(kReplay);
    supervisor_->Step();
    const std::string log = folder_.LogFile(kLearner, ++incarnation);
    std::ofstream(log) << "learner: cuda:3: no such device\n";
    Exit("learner-0", {code, 0});
    supervisor_->Step();
    EXPECT_TRUE(supervisor_->IsStopping());
    Exit("replay-0", {0, 0});
    supervisor_->Step();
    EXPECT_EQ(supervisor_->result().status, RunStatus::kFailed);
    EXPECT_EQ(supervisor_->result().message,
              std::string("learner-0: ") + why + log +
                  " ends with:\n  learner: cuda:3: no such device");
    EXPECT_EQ(supervisor_->result().is_mistake, is_mistake);
  }
}

// The same process did run: what ended it may be gone at the next attempt.
TEST_F(SupervisorTest, ARoleThatHasRunIsStartedAgainWhateverEndsIt) {
  StartAll();
  Exit("learner-0", {kExitConfig, 0});
  supervisor_->Step();
  EXPECT_EQ(PhaseOf(kLearner), RolePhase::kBackingOff);
}

// Would catch a learner that reads one bad number from its replay six times.
TEST_F(SupervisorTest, ARoleThatMeetsBadDataTwiceIsNotStartedAgain) {
  StartAll();
  Exit("learner-0", {kExitData, 0});
  supervisor_->Step();
  ASSERT_EQ(PhaseOf(kLearner), RolePhase::kBackingOff);
  Pass(seconds(3));
  const std::string log = folder_.LogFile(kLearner, 2);
  std::ofstream(log) << "learner: batch 38: row 125 is nan\n";
  Exit("learner-0", {kExitData, 0});
  supervisor_->Step();
  EXPECT_TRUE(supervisor_->IsStopping());
  Exit("actor-0", {0, 0});
  Exit("replay-0", {0, 0});
  supervisor_->Step();
  supervisor_->Step();
  EXPECT_EQ(supervisor_->result().message,
            "learner-0: exit code 65; another restart would meet the same "
            "data; " +
                log + " ends with:\n  learner: batch 38: row 125 is nan");
}

TEST_F(SupervisorTest, AFailureShowsWhatTheProcessHasSaidLast) {
  StartAll();
  const replicant::testing::LogLines lines;
  std::ofstream(folder_.LogFile(kActor, 1))
      << "one\n2026-11-21 06:13:24.123 E actor/7 actor: no task\n";
  Exit("actor-0", {3, 0});
  supervisor_->Step();
  ASSERT_EQ(lines.lines().size(), 1U);
  EXPECT_THAT(lines.lines()[0],
              ::testing::StartsWith(
                  "actor-0: exit code 3 (actor: no task); restart in 2 s"));
}

// Would catch a full disk that ends a run whose learner has failed once.
TEST_F(SupervisorTest, ARestartNeedsNoDisk) {
  StartAll();
  folder_.AwaitDisk(seconds(60));
  // neither the state nor a new log can be written
  std::filesystem::remove(folder_.path() / "state.yaml");
  std::filesystem::create_directories(folder_.path() / "state.yaml" / "x");
  std::filesystem::remove_all(folder_.path() / "logs");
  std::ofstream(folder_.path() / "logs") << "";
  Exit("learner-0", {3, 0});
  Pass(seconds(3));
  EXPECT_FALSE(supervisor_->IsStopping());
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("start learner-0"));
  // its output goes where the fleet's own goes
  EXPECT_EQ(backend_.last_options.at("learner-0").stdout_file, "");
}

// An evaluator without a policy to show is no reason to lose a training.
TEST_F(SupervisorTest, TheRunGoesOnWithoutAnOptionalRole) {
  std::vector<RoleSpec> specs = Specs();
  specs[2].is_optional = true;
  Make(specs);
  for (const RoleId& id : {kReplay, kLearner}) {
    supervisor_->Step();
    Beat(id);
  }
  backend_.start_error = "execute: actor: No such file or directory";
  supervisor_->Step();
  EXPECT_EQ(PhaseOf(kActor), RolePhase::kBackingOff);
  for (int i = 0; i < 20; ++i) {
    Pass(seconds(1));
    Beat(kReplay);
    Beat(kLearner);
  }
  EXPECT_EQ(PhaseOf(kActor), RolePhase::kEnded);
  EXPECT_EQ(supervisor_->Roles()[2].num_failures, 3);
  EXPECT_FALSE(supervisor_->IsStopping());
  EXPECT_EQ(PhaseOf(kLearner), RolePhase::kReady);
}

// A program that is not there will not come: no restarts, one line.
TEST_F(SupervisorTest, AProgramThatCannotBeStartedEndsTheRun) {
  for (const bool cannot_execute : {true, false}) {
    Make();
    backend_.start_error = "execute: replay: No such file or directory";
    backend_.cannot_execute = cannot_execute;
    supervisor_->Step();
    ASSERT_TRUE(supervisor_->IsFinished());
    EXPECT_EQ(supervisor_->result().status, RunStatus::kFailed);
    EXPECT_EQ(supervisor_->result().message,
              "replay-0 cannot be started: execute: replay: No such file or "
              "directory");
    // cluster.roles.replay.command may name it
    EXPECT_EQ(supervisor_->result().is_mistake, cannot_execute);
  }
}

// Later it may be for want of memory: that passes.
TEST_F(SupervisorTest, ARestartThatCannotBeStartedIsAFailure) {
  StartAll();
  Exit("actor-0", {1, 0});
  supervisor_->Step();
  backend_.start_error = "fork: actor: Cannot allocate memory";
  Pass(seconds(2));
  EXPECT_EQ(PhaseOf(kActor), RolePhase::kBackingOff);
  EXPECT_EQ(supervisor_->Roles()[2].last_failure, backend_.start_error);
  EXPECT_FALSE(supervisor_->IsStopping());
}

TEST_F(SupervisorTest, RefusesRolesThatMakeNoSense) {
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { Make({}); }),
            "fleet: no role is given");
  std::vector<RoleSpec> specs = Specs();
  specs[1].command.clear();
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { Make(specs); }),
            "fleet: learner-0 has no command");
  specs[1] = specs[0];
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { Make(specs); }),
            "fleet: replay-0 is given twice");
  specs[0].id.role = "Replay";
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { Make(specs); }),
            "fleet: role 'Replay' is not of the form [a-z0-9_-]{1,32}");
}

TEST_F(SupervisorTest, ARoleThatMayBeLeftOutComesBackWhenItsFailuresAreOld) {
  std::vector<RoleSpec> specs = Specs();
  specs[2].may_be_left_out = true;
  specs[2].restart = {.budget = 0, .window_s = 30.0};
  Make(specs);
  for (const RoleId& id : {kReplay, kLearner, kActor}) {
    supervisor_->Step();
    Beat(id);
  }
  supervisor_->Step();
  backend_.TakeEvents();
  Exit("actor-0", {-1, SIGKILL});
  supervisor_->Step();
  EXPECT_EQ(PhaseOf(kActor), RolePhase::kLeftOut);
  EXPECT_FALSE(supervisor_->IsStopping());
  for (int i = 0; i < 29; ++i) {
    Pass(seconds(1));
    Beat(kReplay);
    Beat(kLearner);
  }
  EXPECT_THAT(backend_.TakeEvents(), IsEmpty());
  Pass(seconds(1));
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("start actor-0"));
}

}  // namespace
}  // namespace replicant::fleet
