#include "fleet/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/fs.h"
#include "tests/support/log_lines.h"
#include "tests/support/message_of.h"

namespace replicant::fleet {
namespace {

using replicant::testing::MessageOf;
using rpc::RoleId;
using rpc::RoleState;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Processes that do what the test says, and what was done to them.
class FakeBackend : public Backend {
 public:
  struct State {
    std::optional<ExitStatus> status;
    bool is_reachable = true;
    bool is_lost = false;
  };

  bool HasRoom(const RoleSpec& spec) const override {
    return !spec.is_remote || has_room;
  }

  std::unique_ptr<RoleProcess> Start(const RoleSpec& spec,
                                     uint32_t /*incarnation*/,
                                     const ProcessOptions& options) override {
    const std::string name = spec.id.ToString();
    if (!start_error.empty()) throw IoError(start_error);
    auto state = std::make_shared<State>();
    states[name] = state;
    last_options[name] = options;
    events.push_back("start " + name);
    return std::make_unique<FakeProcess>(name, state, &events);
  }

  // What happened since the last call, in order.
  std::vector<std::string> TakeEvents() { return std::exchange(events, {}); }

  std::map<std::string, std::shared_ptr<State>> states;
  std::map<std::string, ProcessOptions> last_options;
  std::vector<std::string> events;
  std::string start_error;
  bool has_room = true;

 private:
  class FakeProcess : public RoleProcess {
   public:
    FakeProcess(std::string name, std::shared_ptr<State> state,
                std::vector<std::string>* events)
        : name_(std::move(name)), state_(std::move(state)), events_(events) {}

    std::optional<ExitStatus> Poll() override { return state_->status; }
    void Signal(int signal_number) override {
      const bool is_kill = signal_number == SIGKILL;
      events_->push_back((is_kill ? "kill " : "term ") + name_);
      if (is_kill) state_->status = ExitStatus{-1, SIGKILL};
    }
    int fd() const override { return -1; }
    bool IsReachable() const override { return state_->is_reachable; }
    bool IsLost() const override { return state_->is_lost; }

   private:
    std::string name_;
    std::shared_ptr<State> state_;
    std::vector<std::string>* events_;
  };
};

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest()
      : folder_(RunFolder::Create({.dir = (parent_.path() / "run").string()},
                                  "{}\n")) {
    config_.start_timeout_s = 20.0;
    config_.heartbeat_timeout_s = 10.0;
    config_.stop_timeout_s = 5.0;
  }

  // Replay, learner and one actor, as a run has them; the learner's success
  // completes it.
  static std::vector<RoleSpec> Specs() {
    const RestartPolicy restart = {
        .initial_backoff_s = 2.0, .jitter = 0.0, .budget = 2};
    return {{.id = {"replay", 0},
             .command = {"replay"},
             .start_stage = 0,
             .stop_stage = 2,
             .restart = restart},
            {.id = {"learner", 0},
             .command = {"learner", "--config", "x"},
             .resume_arguments = {"--resume"},
             .first_arguments = {"--from", "7"},
             .environment = {"A=b"},
             .cpus = CpuSet({0}),
             .start_stage = 1,
             .stop_stage = 1,
             .on_success = RoleSpec::OnSuccess::kCompletesRun,
             .restart = restart},
            {.id = {"actor", 0},
             .command = {"actor"},
             .start_stage = 2,
             .stop_stage = 0,
             .restart = restart}};
  }

  void Make(std::vector<RoleSpec> specs = Specs()) {
    supervisor_.emplace(
        Supervisor::Options{.config = config_, .heartbeat_endpoint = "tcp://x"},
        std::move(specs), &folder_, &backend_, &monitor_, &clock_);
  }
  // A heartbeat of the role's newest process.
  void Beat(const RoleId& id, RoleState state = RoleState::kRunning,
            const std::string& reason = "", double progress = 0.0) {
    for (const auto& role : supervisor_->Roles()) {
      if (role.id != id) continue;
      rpc::Heartbeat beat;
      beat.id = id;
      beat.incarnation = role.incarnation;
      beat.state = state;
      beat.reason = reason;
      if (progress > 0.0) {
        beat.numbers["restored_groups"] = {rpc::BeatNumber::Kind::kCounter,
                                           progress};
      }
      last_reply_ = monitor_.Receive(beat);
    }
  }
  void Exit(const std::string& name, ExitStatus status) {
    backend_.states.at(name)->status = status;
  }
  // Lets time pass in steps of half a second, as a supervisor that is awake
  // sees it.
  void Pass(Clock::Duration time) {
    for (Clock::Duration passed{0}; passed < time;
         passed += milliseconds(500)) {
      clock_.Advance(milliseconds(500));
      supervisor_->Step();
    }
  }
  void StartAll() {
    Make();
    for (const RoleId& id : {kReplay, kLearner, kActor}) {
      supervisor_->Step();
      Beat(id);
    }
    supervisor_->Step();
    ASSERT_THAT(
        backend_.TakeEvents(),
        ElementsAre("start replay-0", "start learner-0", "start actor-0"));
  }
  RolePhase PhaseOf(const RoleId& id) {
    for (const auto& role : supervisor_->Roles()) {
      if (role.id == id) return role.phase;
    }
    ADD_FAILURE() << "no " << id.ToString();
    return RolePhase::kPending;
  }

  const RoleId kReplay = {"replay", 0}, kLearner = {"learner", 0},
               kActor = {"actor", 0};
  const TemporaryFolder parent_;
  RunFolder folder_;
  FleetConfig config_;
  FakeBackend backend_;
  FakeClock clock_;
  rpc::HeartbeatMonitor monitor_{clock_};
  std::optional<Supervisor> supervisor_;
  rpc::BeatReply last_reply_;
};

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
            "actor-0: exit code 1, after the 2 restarts in 600 s that are "
            "allowed; " +
                log +
                " ends with:\n  first line\n"
                "  actor: no such task 'wlaker'");
  EXPECT_THAT(result.problems, IsEmpty());
}

// Would catch five restarts of a learner whose device does not exist.
TEST_F(SupervisorTest, AConfigurationThatCannotRunIsTriedOnce) {
  Make();
  supervisor_->Step();
  Beat(kReplay);
  supervisor_->Step();
  const std::string log = folder_.LogFile(kLearner, 1);
  std::ofstream(log) << "learner: cuda:3: no such device\n";
  Exit("learner-0", {kExitConfig, 0});
  supervisor_->Step();
  EXPECT_TRUE(supervisor_->IsStopping());
  Exit("replay-0", {0, 0});
  supervisor_->Step();
  EXPECT_EQ(supervisor_->result().status, RunStatus::kFailed);
  EXPECT_EQ(supervisor_->result().message,
            "learner-0: exit code 78; nothing but another configuration can "
            "help; " +
                log + " ends with:\n  learner: cuda:3: no such device");
}

// The same process did run: what ended it may be gone at the next attempt.
TEST_F(SupervisorTest, ARoleThatHasRunIsStartedAgainWhateverEndsIt) {
  StartAll();
  Exit("learner-0", {kExitConfig, 0});
  supervisor_->Step();
  EXPECT_EQ(PhaseOf(kLearner), RolePhase::kBackingOff);
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
              ::testing::StartsWith("actor-0: exit code 3 (actor: no task); "
                                    "starts again in 2 s"));
}

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
  EXPECT_EQ(supervisor_->Roles()[2].last_failure, "no heartbeat for 10.5 s");
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
            "not running 20 s after its start, but starting: reading the "
            "checkpoint");
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
            "not running 20 s after its last progress, but starting: restores "
            "the replay");
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

TEST_F(SupervisorTest, TheLearnersEndCompletesTheRunAndAllDrainInOrder) {
  StartAll();
  Exit("learner-0", {0, 0});
  supervisor_->Step();
  EXPECT_THAT(backend_.TakeEvents(), ElementsAre("term actor-0"));
  Beat(kActor, RoleState::kDraining);
  EXPECT_EQ(last_reply_, (rpc::BeatReply{rpc::BeatReply::Order::kStop,
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
      ElementsAre("actor-0: not ended 5 s after the order to drain; see " +
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

// A program that is not there will not come: no restarts, one line.
TEST_F(SupervisorTest, AProgramThatCannotBeStartedEndsTheRun) {
  Make();
  backend_.start_error = "execute: replay: No such file or directory";
  supervisor_->Step();
  ASSERT_TRUE(supervisor_->IsFinished());
  EXPECT_EQ(supervisor_->result().status, RunStatus::kFailed);
  EXPECT_EQ(supervisor_->result().message,
            "replay-0 cannot be started: execute: replay: No such file or "
            "directory");
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

// --- an elastic group: learner-0, worker-1 and worker-2 ---

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
  EXPECT_EQ(last_reply_.order, rpc::BeatReply::Order::kGoOn);
  Pass(seconds(2));
  Beat(kLearner);
  EXPECT_EQ(last_reply_.order, rpc::BeatReply::Order::kStop);
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
  EXPECT_THAT(log.lines(),
              ::testing::Contains("without worker-1 its group has 2 members; "
                                  "it needs 3 or more"));
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
