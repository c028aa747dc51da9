#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "engine/kernels/backend.h"
#include "replicator/calls/device_communicator.h"
#include "replicator/comm/communicator.h"
#include "replicator/steps/processes.h"

namespace replicant::replicator {

// The device communicators of this process's replicas, which one thread
// watches while they make a step: a step that takes longer than the timeout, a
// failure that the library reports and a failure of the host's communicator
// (heartbeats) abort them all, so that no device waits for a lost
// replica.
//
// Thread-safety: Run() from each replica's own threads; Abort() from any; the
// rest from one thread.
class DeviceTeam {
 public:
  struct Member {
    kernels::Backend* backend;
    // By rank of all replicas; outlives the team.
    comm::Communicator* host;
  };

  // Connects all replicas; every process calls it. Null for a lone replica and
  // for backends that need no device communicator. Replicas have a device each,
  // or they are all of one process and share one. Throws ConfigError for
  // another layout, DeviceError for a library that is missing or not the same
  // everywhere, CommError; all processes throw.
  static std::unique_ptr<DeviceTeam> Connect(
      const std::vector<Member>& members, Processes& processes,
      const comm::CommunicatorOptions& options);
  ~DeviceTeam();
  DeviceTeam(const DeviceTeam&) = delete;
  DeviceTeam& operator=(const DeviceTeam&) = delete;

  DeviceCommunicator& of(size_t replica) {
    return *members_[replica].communicator;
  }

  // Runs a part of a step of one replica, which ends with an empty stream, and
  // watches it. Throws CommError if the calls of the step have failed: its
  // results are then undefined.
  template <typename Work>
  void Run(size_t replica, const Work& work) {
    // a step that failed may have left calls that still use the plan's memory
    ThrowIfFailed(replica);
    const Watched watched(this, replica);
    work();
    ThrowIfFailed(replica);
  }

  // Fails all calls of this process's replicas, now and later.
  void Abort(const std::string& reason);

 private:
  struct Watch {
    std::unique_ptr<DeviceCommunicator> communicator;
    comm::Communicator* host = nullptr;
    // Threads in Run(), and when the first of them must be done.
    int num_running = 0;
    Clock::TimePoint deadline;
  };

  // Notes that a replica is in Run().
  class Watched {
   public:
    Watched(DeviceTeam* team, size_t replica)
        : team_(*team), replica_(replica) {
      team_.Begin(replica);
    }
    ~Watched() { team_.End(replica_); }
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

   private:
    DeviceTeam& team_;
    const size_t replica_;
  };

  explicit DeviceTeam(const comm::CommunicatorOptions& options)
      : options_(options) {}

  void ShareDevice(const std::vector<Member>& members);
  void ConnectDevices(const std::vector<Member>& members, Processes& processes);
  void Begin(size_t replica) EXCLUDES(mutex_);
  void End(size_t replica) EXCLUDES(mutex_);
  void ThrowIfFailed(size_t replica);
  // The thread's loop.
  void WatchAll() EXCLUDES(mutex_);
  // Why the calls of this process must end; empty if they need not.
  std::string FindFailure() REQUIRES(mutex_);

  const comm::CommunicatorOptions options_;
  // num_running and deadline are guarded by mutex_
  std::vector<Watch> members_;
  Mutex mutex_;
  CondVar changed_;
  int num_running_ GUARDED_BY(mutex_) = 0;
  bool is_idle_ GUARDED_BY(mutex_) = false;
  bool is_stopped_ GUARDED_BY(mutex_) = false;
  std::optional<Thread> thread_;
};

}  // namespace replicant::replicator
