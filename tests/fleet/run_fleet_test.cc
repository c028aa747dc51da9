// Fleets of real processes: fake_fleet_main.cc supervises fake_role_main.cc.
#include "fleet/run_fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "base/thread.h"
#include "fleet/host_agent.h"
#include "fleet/run_report.h"
#include "tests/support/http_get.h"
#include "tests/support/stalled_disk.h"

namespace replicant::fleet {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kLong = seconds(120);

class RunFleetTest : public ::testing::Test {
 protected:
  ~RunFleetTest() override {
    fleet_.reset();
    // whatever a test has done, nothing is left
    EXPECT_TRUE(AwaitNoProcess()) << ReadFile(output_);
  }

  // Adds a role that the fleet starts; see fake_fleet_main.cc.
  void AddRole(const std::string& role, const char* start_stage,
               const char* stop_stage, const char* budget,
               const char* on_success, const std::vector<std::string>& steps) {
    const std::vector<std::string> words = {"--role",
                                            role,
                                            "0",
                                            start_stage,
                                            stop_stage,
                                            budget,
                                            on_success,
                                            REPLICANT_FAKE_ROLE,
                                            work_.path().string()};
    arguments_.insert(arguments_.end(), words.begin(), words.end());
    arguments_.insert(arguments_.end(), steps.begin(), steps.end());
  }
  void Start(const std::vector<std::string>& options = {}) {
    std::vector<std::string> command = {REPLICANT_FAKE_FLEET, run_.string()};
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), arguments_.begin(), arguments_.end());
    fleet_.emplace(ProcessOptions{
        .command = command, .stdout_file = output_, .stderr_file = output_});
  }
  int ExitCode() {
    const auto status = fleet_->Wait(kLong);
    return status ? status->code : -2;
  }

  static bool Await(const std::function<bool()>& condition) {
    const auto deadline = Clock::Real().Now() + kLong;
    while (!condition()) {
      if (Clock::Real().Now() > deadline) return false;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return true;
  }
  bool AwaitOutput(const std::string& text) {
    return Await([&] {
      return std::filesystem::exists(output_) &&
             Output().find(text) != std::string::npos;
    });
  }
  std::string Output() const { return ReadFile(output_); }
  std::vector<std::string> Lines(const char* name) const {
    std::vector<std::string> lines;
    const auto path = work_.path() / name;
    if (!std::filesystem::exists(path)) return lines;
    std::istringstream text(ReadFile(path));
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  }
  // A zombie, which nobody may have waited for, does not run.
  static bool IsRunning(const std::string& pid) {
    const std::string file = "/proc/" + pid + "/stat";
    try {
      const std::string stat = ReadFile(file);
      const char state = stat.at(stat.rfind(')') + 2);
      return state != 'Z' && state != 'X';
    } catch (const IoError&) {
      return false;
    }
  }
  bool AwaitNoProcess() const {
    return Await([this] {
      for (const std::string& pid : Lines("pids")) {
        if (IsRunning(pid)) return false;
      }
      return true;
    });
  }

  const TemporaryFolder work_;
  const std::filesystem::path run_ = work_.path() / "run";
  const std::filesystem::path output_ = work_.path() / "output";
  std::vector<std::string> arguments_;
  std::optional<Process> fleet_;
};

TEST_F(RunFleetTest, RunsToItsEndAndDrainsInOrder) {
  AddRole("replay", "0", "2", "0", "restart", {"run", "until-stop"});
  AddRole("learner", "2", "1", "0", "completes", {"run"});
  AddRole("actor", "1", "0", "0", "restart",
          {"count=7", "wait=no room", "until-stop"});
  Start();
  EXPECT_EQ(ExitCode(), 0) << Output();
  EXPECT_THAT(Lines("ends"), ElementsAre("learner-0", "actor-0", "replay-0"));
  EXPECT_THAT(Output(),
              HasSubstr("complete: learner-0 has completed the run\n"));
  // where there is no terminal the last line of progress is a plain one
  EXPECT_THAT(Output(), HasSubstr("steps 7  limit stopping\n"));
  EXPECT_THAT(ReadFile(run_ / "state.yaml"),
              HasSubstr("status: complete\nstarts: 1\n"));
}

TEST_F(RunFleetTest, StartsACrashedRoleAgain) {
  AddRole("learner", "0", "1", "0", "completes", {"run", "until-stop"});
  AddRole("actor", "1", "0", "2", "restart",
          {"run", "1:crash", "2:exit=3", "print=third", "until-stop"});
  Start();
  ASSERT_TRUE(AwaitOutput("actor-0 starts (incarnation 3)")) << Output();
  ASSERT_TRUE(Await([&] {
    return std::filesystem::exists(run_ / "logs/actor-0.3.log") &&
           ReadFile(run_ / "logs/actor-0.3.log") == "third\n";
  }));
  EXPECT_THAT(Output(), HasSubstr("actor-0: signal 6 (Aborted); restart in"));
  EXPECT_THAT(Output(), HasSubstr("actor-0: exit code 3; restart in"));
  fleet_->Signal(SIGINT);
  EXPECT_EQ(ExitCode(), 0) << Output();
  EXPECT_THAT(Output(), HasSubstr("stopped: stopped by a signal\n"));
}

TEST_F(RunFleetTest, ARoleThatAlwaysFailsEndsTheRunWithItsLog) {
  AddRole("learner", "0", "1", "0", "completes", {"run", "until-stop"});
  AddRole("actor", "1", "0", "1", "restart",
          {"run", "print=actor: unknown task 'wlaker'", "exit=1"});
  Start();
  EXPECT_EQ(ExitCode(), 1);
  const std::string log = (run_ / "logs/actor-0.2.log").string();
  EXPECT_THAT(Output(),
              HasSubstr("failed: actor-0: exit code 1, after all 1 restarts "
                        "allowed in 600 s; " +
                        log + " ends with:\n  actor: unknown task 'wlaker'\n"));
  EXPECT_THAT(Lines("ends"), ElementsAre("actor-0", "actor-0", "learner-0"));
  EXPECT_THAT(ReadFile(run_ / "state.yaml"), HasSubstr("status: failed\n"));
}

// Would catch a complete run that counts as failed from then on.
TEST_F(RunFleetTest, AResumeThatARoleRefusesKeepsTheStatus) {
  AddRole("learner", "0", "0", "0", "completes", {"run"});
  Start();
  ASSERT_EQ(ExitCode(), 0) << Output();
  arguments_.clear();
  AddRole("learner", "0", "0", "0", "completes", {"exit=78"});
  Start({"--resume"});
  EXPECT_EQ(ExitCode(), 1);
  EXPECT_THAT(Output(), HasSubstr("failed: learner-0: exit code 78; "));
  EXPECT_THAT(ReadFile(run_ / "state.yaml"),
              HasSubstr("status: complete\nstarts: 2\n"));
}

TEST_F(RunFleetTest, GoesOnWithoutAnOptionalRole) {
  AddRole("learner", "0", "1", "0", "completes", {"run", "until-stop"});
  AddRole("actor", "0", "0", "1", "optional", {"run", "exit=1"});
  Start();
  ASSERT_TRUE(
      AwaitOutput("the run continues without actor-0: exit code 1, after "
                  "all 1 restarts"))
      << Output();
  fleet_->Signal(SIGINT);
  EXPECT_EQ(ExitCode(), 0) << Output();
}

TEST_F(RunFleetTest, KillsARoleThatHangs) {
  AddRole(
      "actor", "0", "0", "9", "restart",
      {"run", "1:await=heard-of", "1:silent", "1:ignore-stop", "until-stop"});
  Start({"--set", "fleet.heartbeat_timeout_s=1"});
  ASSERT_TRUE(AwaitOutput("actor-0 runs")) << Output();
  AtomicWriteFile(work_.path() / "heard-of", "");
  ASSERT_TRUE(AwaitOutput("actor-0 starts (incarnation 2)")) << Output();
  EXPECT_THAT(Output(), HasSubstr("actor-0: no heartbeat for "));
  fleet_->Signal(SIGTERM);
  EXPECT_EQ(ExitCode(), 0) << Output();
}

TEST_F(RunFleetTest, KillsWhatDoesNotDrain) {
  AddRole("actor", "0", "0", "1", "restart",
          {"ignore-stop", "run", "until-stop"});
  Start({"--set", "fleet.stop_timeout_s=0.2"});
  ASSERT_TRUE(AwaitOutput("actor-0 runs")) << Output();
  fleet_->Signal(SIGINT);
  EXPECT_EQ(ExitCode(), 1);
  EXPECT_THAT(
      Output(),
      HasSubstr("actor-0: still running 0.2 s after the order to drain"));
}

TEST_F(RunFleetTest, ASecondSignalDoesNotWait) {
  AddRole("actor", "0", "0", "1", "restart",
          {"ignore-stop", "run", "until-stop"});
  Start({"--set", "fleet.stop_timeout_s=3600"});
  ASSERT_TRUE(AwaitOutput("actor-0 runs")) << Output();
  fleet_->Signal(SIGINT);
  ASSERT_TRUE(AwaitOutput("stopped by a signal; draining")) << Output();
  // two at once are one
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  fleet_->Signal(SIGINT);
  EXPECT_EQ(ExitCode(), 1);
  EXPECT_THAT(Output(), HasSubstr("stopped by a second signal; killing it"));
}

TEST_F(RunFleetTest, AnInterruptThatComesTwiceAtOnceDrains) {
  AddRole("actor", "0", "0", "1", "restart", {"run", "until-stop"});
  Start();
  ASSERT_TRUE(AwaitOutput("actor-0 runs")) << Output();
  // as timeout -s INT does: to the process, and to its group
  fleet_->Signal(SIGINT);
  fleet_->Signal(SIGINT);
  EXPECT_EQ(ExitCode(), 0) << Output();
  EXPECT_THAT(Output(), Not(HasSubstr("second signal")));
}

TEST_F(RunFleetTest, NothingOutlivesAKilledFleetAndItCanBeResumed) {
  AddRole("learner", "1", "1", "0", "completes",
          {"run", "2:exit=0", "ignore-stop", "until-stop"});
  AddRole("actor", "0", "0", "0", "restart", {"run", "until-stop"});
  Start();
  ASSERT_TRUE(AwaitOutput("learner-0 runs")) << Output();
  ASSERT_TRUE(AwaitOutput("actor-0 runs")) << Output();
  // the process itself and not, as Process::Signal() would, its group
  ASSERT_EQ(::kill(fleet_->pid(), SIGKILL), 0);
  EXPECT_EQ(fleet_->Wait(), (ExitStatus{-1, SIGKILL}));
  EXPECT_EQ(Lines("pids").size(), 2u);
  EXPECT_TRUE(AwaitNoProcess());
  EXPECT_THAT(Lines("ends"), ElementsAre());

  fleet_.reset();
  Start({"--resume"});
  EXPECT_EQ(ExitCode(), 0) << Output();
  EXPECT_THAT(Output(), HasSubstr("learner-0 starts (incarnation 2)"));
  EXPECT_THAT(ReadFile(run_ / "state.yaml"),
              HasSubstr("status: complete\nstarts: 2\n"));
}

TEST_F(RunFleetTest, RefusesAFolderInUseAndAProgramThatIsNotThere) {
  AddRole("actor", "0", "0", "0", "restart", {"run", "until-stop"});
  Start();
  ASSERT_TRUE(AwaitOutput("actor-0 runs")) << Output();
  const CommandResult second = RunCommand(
      {.command = {REPLICANT_FAKE_FLEET, run_.string(), "--resume"}}, kLong);
  EXPECT_EQ(second.status.code, 1);
  EXPECT_THAT(second.output,
              HasSubstr("another fleet or learner is running in it: "));
  fleet_->Signal(SIGTERM);
  EXPECT_EQ(ExitCode(), 0) << Output();

  const CommandResult third = RunCommand(
      {.command = {REPLICANT_FAKE_FLEET, run_.string() + "-3", "--role",
                   "actor", "0", "0", "0", "9", "restart", "/no/such"}},
      kLong);
  EXPECT_EQ(third.status.code, 1);
  EXPECT_THAT(third.output,
              HasSubstr("failed: actor-0 cannot be started: execute: /no/such: "
                        "No such file or directory\n"));
}

// Would catch a fleet that restarts nobody while an fsync stands still.
TEST_F(RunFleetTest, AStalledDiskHoldsUpNoRestart) {
  const testing::StalledDisk disk(work_.path() / "stalled");
  AddRole("actor", "0", "0", "5", "restart",
          {"run", "1:await=go", "1:crash", "until-stop"});
  Start();
  ASSERT_TRUE(AwaitOutput("actor-0 runs")) << Output();
  disk.Stall();
  std::ofstream(work_.path() / "go") << "";
  EXPECT_TRUE(AwaitOutput("actor-0 starts (incarnation 2)")) << Output();
  disk.Resume();
  fleet_->Signal(SIGTERM);
  EXPECT_EQ(ExitCode(), 0) << Output();
  EXPECT_THAT(ReadFile(run_ / "state.yaml"),
              HasSubstr("status: stopped\nstarts: 1\nroles:\n"
                        "  actor-0: {last: 2}\n"));
}

// Five checkpoints that fail must not be a secret of a log.
TEST_F(RunFleetTest, TheConsoleHasTheWarningsAndErrorsOfTheRoles) {
  AddRole(
      "actor", "0", "0", "0", "restart",
      {"print=2026-11-21 06:13:24.123 E actor/7 no checkpoint of step 5",
       "print=2026-11-21 06:13:24.124 I actor/7 step 6", "run", "until-stop"});
  Start();
  EXPECT_TRUE(AwaitOutput(" actor-0: no checkpoint of step 5\n")) << Output();
  fleet_->Signal(SIGTERM);
  EXPECT_EQ(ExitCode(), 0) << Output();
  EXPECT_THAT(Output(), Not(HasSubstr("step 6")));
}

// Would catch hosts that take a failure for the end of a run, and are away when
// its launcher is started again.
TEST_F(RunFleetTest, HostsWaitForARunThatHasFailed) {
  AddRole("actor", "0", "0", "0", "restart", {"run", "await=go", "exit=1"});
  Start({"--hosts"});
  ASSERT_TRUE(AwaitOutput("actor-0 runs")) << Output();
  ASSERT_TRUE(Await(
      [this] { return std::filesystem::exists(RunFolder::ReportFile(run_)); }));
  const std::string endpoint = RunReport::Read(run_).endpoint;
  const Thread failure("failure", [this](const Thread::StopToken&) {
    EXPECT_TRUE(AwaitOutput("host test joins")) << Output();
    std::ofstream(work_.path() / "go") << "";
  });
  const StopSignal stop;
  // not told to leave, it looks for the next launcher
  EXPECT_FALSE(RunHostAgent({.find_launcher =
                                 [&endpoint] {
                                   return LauncherAddress{endpoint, ""};
                                 },
                             .make_command = {},
                             .host = "test",
                             .slots = 1,
                             .join_timeout = seconds(5)},
                            stop));
  EXPECT_EQ(ExitCode(), 1) << Output();
  EXPECT_THAT(ReadFile(run_ / "state.yaml"), HasSubstr("status: failed\n"));
}

TEST_F(RunFleetTest, ServesTheNumbersOfItsRoles) {
  AddRole("actor", "0", "0", "0", "restart", {"count=7", "run", "until-stop"});
  Start({"--set", "fleet.metrics_address=127.0.0.1:0"});
  const std::string text =
      "serving the metrics of every role at http://127.0.0.1:";
  ASSERT_TRUE(AwaitOutput("actor-0 runs")) << Output();
  const std::string port = Output().substr(Output().find(text) + text.size());
  const int number = std::stoi(port);
  EXPECT_TRUE(Await([&] {
    const std::string page = testing::HttpGet(number, "/metrics");
    return page.find(
               "replicant_role_steps_total{index=\"0\",role=\"actor\",run="
               "\"run\"} "
               "7\n") != std::string::npos &&
           page.find(
               "replicant_fleet_role_up{index=\"0\",role=\"actor\",run=\"run\"}"
               " "
               "1\n") != std::string::npos;
  })) << testing::HttpGet(number, "/metrics");

  const CommandResult second = RunCommand(
      {.command = {REPLICANT_FAKE_FLEET, run_.string() + "-2", "--set",
                   "fleet.metrics_address=127.0.0.1:" + std::to_string(number),
                   "--role", "actor", "0", "0", "0", "9", "restart",
                   "/no/such"}},
      kLong);
  EXPECT_EQ(second.status.code, 1);
  EXPECT_THAT(second.output, HasSubstr("fleet: fleet.metrics_address: "));
  fleet_->Signal(SIGTERM);
  EXPECT_EQ(ExitCode(), 0) << Output();
}

}  // namespace
}  // namespace replicant::fleet
