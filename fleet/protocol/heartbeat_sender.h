#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/rpc/client.h"
#include "base/thread.h"
#include "fleet/protocol/heartbeat.h"

namespace replicant::fleet {

struct HeartbeatSenderOptions {
  // Endpoint of the supervisor; empty: none, and nothing is sent.
  std::string endpoint;
  // File of the key pair that the supervisor and its roles hold (GroupKey);
  // empty: none.
  std::string key_file;
  RoleId id;
  uint32_t incarnation = 1;
  Clock::Duration interval = std::chrono::seconds(1);
  rpc::SocketOptions socket = {};

  // Reads the variables that a supervisor sets for its processes; an unset one
  // keeps its default.
  //
  //   REPLICANT_SUPERVISOR    endpoint
  //   REPLICANT_KEY_FILE      key_file
  //   REPLICANT_ROLE          role
  //   REPLICANT_ROLE_INDEX    index
  //   REPLICANT_INCARNATION   incarnation
  //
  // Throws InvalidArgument, naming the variable, for a value of the wrong form.
  static HeartbeatSenderOptions FromEnvironment(
      HeartbeatSenderOptions defaults);
  // The same variables, "NAME=value", for a process to be started.
  std::vector<std::string> ToEnvironment() const;
};

// Sends the state and the numbers of this process to its supervisor once an
// interval.
//
//   HeartbeatSender heartbeat(HeartbeatSenderOptions::FromEnvironment(
//       {.id = {"actor"}}));
//   heartbeat.SetState(RoleState::kRunning);
//   while (stop.count() == 0 && !heartbeat.StopOrder()) {
//     Step();
//     heartbeat.SetCounter("env_steps", env_steps);
//   }
//
// A thread of the sender sends the messages; the methods only record values, so
// a slow or lost supervisor never blocks the role. The sender retries as long
// as it lives. A change into or out of kStarting or kDraining is sent at once
// instead of at the next interval. The destructor sends a last heartbeat if the
// supervisor answers.
//
// A heartbeat proves that the process lives. Its numbers show whether the main
// loop makes progress.
//
// Thread-safety: all methods may be called from any thread.
class HeartbeatSender {
 public:
  // Throws InvalidArgument for a role that breaks its form, CommError for an
  // endpoint that cannot be parsed, and IoError as ReadKeyPair() does.
  explicit HeartbeatSender(HeartbeatSenderOptions options);
  ~HeartbeatSender();
  HeartbeatSender(const HeartbeatSender&) = delete;
  HeartbeatSender& operator=(const HeartbeatSender&) = delete;

  // `reason` is why the role waits, starts or drains. Cheap enough for every
  // step.
  void SetState(RoleState state, std::string_view reason = {}) EXCLUDES(mutex_);
  // For a role that measures its waits instead of reporting each as kWaiting.
  // `total_s` is the sum of all waits so far and adds to the time in kWaiting;
  // `reason` is the reason of the newest wait.
  void SetWaited(double total_s, std::string_view reason) EXCLUDES(mutex_);
  // Throw InvalidArgument for a name that breaks its form, or one too many.
  void SetCounter(std::string_view name, double total) EXCLUDES(mutex_);
  void SetGauge(std::string_view name, double value) EXCLUDES(mutex_);
  // A gauge that the sender's thread reads for each heartbeat, so that it is
  // new even while the role is held up. `value` is for any thread, must not
  // call the sender, and outlives it.
  void SetGaugeSource(std::string_view name, std::function<double()> value)
      EXCLUDES(mutex_);

  // Tells where this process listens, for the other roles of the run. Call it
  // before SetState(kRunning): roles that start after this one then know the
  // address.
  void SetEndpoint(const std::string& endpoint) EXCLUDES(mutex_);
  // Where the process of another role listens, as it has told by SetEndpoint();
  // empty while none runs, or the supervisor has not answered yet.
  std::string EndpointOf(const RoleId& id) const EXCLUDES(mutex_);

  // The reason of the supervisor's order to drain and end; std::nullopt while
  // there is no order.
  std::optional<std::string> StopOrder() const EXCLUDES(mutex_);

 private:
  void SetNumber(std::string_view name, BeatNumber number) EXCLUDES(mutex_);
  void Run() EXCLUDES(mutex_);
  // Sends the present state and waits up to `timeout` for the answer. Once the
  // destructor runs, only the last heartbeat (`is_last`) is sent.
  void Beat(Clock::Duration timeout, bool is_last) EXCLUDES(mutex_);
  Heartbeat Snapshot() EXCLUDES(mutex_);
  void HandleReply(const rpc::CallReply& reply) EXCLUDES(mutex_);
  bool IsEnding() const EXCLUDES(mutex_);
  // Waits for the next interval, news or the end; false at the end.
  bool AwaitNext(Clock::TimePoint next) EXCLUDES(mutex_);

  const HeartbeatSenderOptions options_;
  mutable Mutex mutex_;
  CondVar changed_;
  RoleState state_ GUARDED_BY(mutex_) = RoleState::kStarting;
  std::string reason_ GUARDED_BY(mutex_);
  Clock::Duration waited_ GUARDED_BY(mutex_){0};  // before waiting_since_
  Clock::TimePoint waiting_since_ GUARDED_BY(mutex_);
  double measured_wait_s_ GUARDED_BY(mutex_) = 0.0;
  std::map<std::string, BeatNumber, std::less<>> numbers_ GUARDED_BY(mutex_);
  std::map<std::string, std::function<double()>> sources_ GUARDED_BY(mutex_);
  std::string endpoint_ GUARDED_BY(mutex_);
  std::vector<RoleEndpoint> endpoints_ GUARDED_BY(mutex_);
  std::optional<std::string> stop_order_ GUARDED_BY(mutex_);
  bool has_news_ GUARDED_BY(mutex_) = false;
  bool is_ending_ GUARDED_BY(mutex_) = false;

  // of the sender's thread
  std::string last_problem_;
  rpc::ZmqContext context_;
  std::optional<rpc::Client> client_;
  std::optional<Thread> thread_;
};

}  // namespace replicant::fleet
