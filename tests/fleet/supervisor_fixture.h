#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "fleet/supervisor.h"

// A supervisor of processes that a test speaks for.
namespace replicant::fleet {

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
    if (!start_error.empty() && cannot_execute) throw ExecuteError(start_error);
    if (!start_error.empty()) throw IoError(start_error);
    if (spec.is_remote && std::exchange(loses_room, false)) return nullptr;
    auto state = std::make_shared<State>();
    states[name] = state;
    last_options[name] = options;
    events.push_back("start " + name);
    return std::make_unique<FakeProcess>(name, state, &events);
  }

  // The events since the last call, in order.
  std::vector<std::string> TakeEvents() { return std::exchange(events, {}); }

  std::map<std::string, std::shared_ptr<State>> states;
  std::map<std::string, ProcessOptions> last_options;
  std::vector<std::string> events;
  std::string start_error;
  bool cannot_execute = false;  // whether start_error is of the program
  bool has_room = true;
  bool loses_room = false;  // before the next start of a remote role

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
      Heartbeat beat;
      beat.id = id;
      beat.incarnation = role.incarnation;
      beat.state = state;
      beat.reason = reason;
      if (progress > 0.0) {
        beat.numbers["restored_groups"] = {BeatNumber::Kind::kCounter,
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
         passed += std::chrono::milliseconds(500)) {
      clock_.Advance(std::chrono::milliseconds(500));
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
    ASSERT_THAT(backend_.TakeEvents(),
                ::testing::ElementsAre("start replay-0", "start learner-0",
                                       "start actor-0"));
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
  HeartbeatMonitor monitor_{clock_};
  std::optional<Supervisor> supervisor_;
  BeatReply last_reply_;
};

}  // namespace replicant::fleet
