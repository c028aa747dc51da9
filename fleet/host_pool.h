#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/disk_queue.h"
#include "base/mutex.h"
#include "base/rpc/server.h"
#include "fleet/backend.h"
#include "fleet/protocol/agent_messages.h"

namespace replicant::fleet {

// The hosts that have joined a run, and the processes on them.
//
// Each host has an agent (fleet/host_agent.h), which joins, reports four times
// a second and gets orders in the answers. Hosts may join and leave at any
// time. A host that is silent for `timeout` is lost: by then its agent, without
// an answer, has ended the processes. A host that returns earlier continues as
// if nothing had happened. Host names are unique: an agent replaces an earlier
// one of the same name.
//
//   HostPool pool(options);
//   pool.AttachTo(server);            // before server.Run()
//   if (pool.HasRoom(id)) process = pool.Start(id, 1, {}, log);
//   pool.Update();                    // periodically: finds lost hosts
//   pool.Dismiss("the run is over");
//
// While the disk stands still, up to kMaxLogBytes of the hosts' logs wait for
// it. The hosts keep what comes after these bytes and send it later.
//
// Thread-safety: all methods may be called from any thread.
class HostPool {
 public:
  // No more logs are taken once so many bytes wait for the disk; the last
  // report taken may go beyond.
  static constexpr int64_t kMaxLogBytes = int64_t{64} << 20;

  struct Options {
    // Files that every agent receives: configuration, addresses, key, model.
    std::vector<AgentFile> files;
    Clock::Duration timeout = std::chrono::seconds(60);
    // Processors per actor, for a host that sets no number of actors.
    int64_t processors_per_process = 1;
    // Time after which an unneeded host is told to leave; 0: never.
    Clock::Duration idle_timeout{};
    Clock* clock = &Clock::Real();
  };
  struct HostView {
    std::string name;
    std::string role;
    int64_t slots = 0;
    int64_t num_processes = 0;
    double silent_s = 0.0;
  };

  explicit HostPool(Options options);
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  void AttachTo(rpc::Server& server);

  // Whether a responsive host has room for the process. A host offers room for
  // any process of a role ("actor"), or for one process ("replay-1").
  bool HasRoom(const RoleId& id) const EXCLUDES(mutex_);
  // Starts a process of the role on the host with the most room. The agent adds
  // `arguments` to its command; its output is appended to `log`. The process
  // must not outlive the pool. Returns null if no host has room.
  std::unique_ptr<RoleProcess> Start(const RoleId& id, uint32_t incarnation,
                                     const std::vector<std::string>& arguments,
                                     const std::filesystem::path& log)
      EXCLUDES(mutex_);

  // Gives up hosts that have been silent for too long. `have_all_a_place` says
  // that every remote process is placed; hosts without processes are then
  // unneeded.
  void Update(bool have_all_a_place = false) EXCLUDES(mutex_);
  // Gives up the agents of a host, after their launcher has seen them end.
  void Lose(const std::string& host, const std::string& why) EXCLUDES(mutex_);

  // Tells every agent to leave, and refuses new agents from then on.
  void Dismiss(const std::string& why) EXCLUDES(mutex_);
  // Whether every agent that still answers has been told to leave.
  bool IsDismissed() const EXCLUDES(mutex_);

  std::vector<HostView> Hosts() const EXCLUDES(mutex_);

  // Computes the answer to an agent's message; AttachTo() sends it.
  JoinReply Join(const JoinRequest& request) EXCLUDES(mutex_);
  ReportReply Report(const AgentReport& report) EXCLUDES(mutex_);

 private:
  class HostProcess;
  using ProcessKey = std::pair<RoleId, uint32_t>;  // with its incarnation

  struct Agent;
  struct ProcessState {
    std::string host;
    std::filesystem::path log;
    Agent* agent = nullptr;  // that runs it; null once it has ended
    std::optional<ExitStatus> status;
    bool is_lost = false;
  };
  struct Agent {
    uint64_t id = 0;
    std::string host;
    std::string role;
    int64_t slots = 0;
    Clock::TimePoint heard_at;
    uint64_t last_order = 0;
    std::vector<AgentOrder> orders;  // not carried out yet
    std::map<ProcessKey, std::shared_ptr<ProcessState>> processes;
    bool is_told_to_leave = false;
    std::optional<Clock::TimePoint> not_needed_since;
  };

  // Agents with room, the most room first, of equal ones the smallest id.
  using Room = std::set<std::pair<int64_t, uint64_t>>;  // {-places, id}

  void Forget(uint64_t id, const std::string& why) REQUIRES(mutex_);
  // The responsive agent with the most room; nullptr if no agent has room.
  // O(log(agents) + silent agents).
  const Agent* FindRoom(const RoleId& id) const REQUIRES(mutex_);
  // Calls `change` and keeps `rooms_` in step with the agent.
  void ChangeRoom(Agent& agent, const std::function<void()>& change)
      REQUIRES(mutex_);
  static std::pair<int64_t, uint64_t> RoomOf(const Agent& agent);
  bool IsHeard(const Agent& agent) const;
  void Order(const ProcessState& state, const ProcessKey& key,
             int signal_number) EXCLUDES(mutex_);
  // Writes the logs of the report; false, and none is written, while too many
  // bytes wait for the disk.
  bool KeepLogs(const Agent& agent, const AgentReport& report) REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  std::map<uint64_t, Agent> agents_ GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> agent_of_host_ GUARDED_BY(mutex_);
  std::map<std::string, Room> rooms_ GUARDED_BY(mutex_);  // by Agent::role
  std::optional<std::string> dismissed_because_ GUARDED_BY(mutex_);
  // of logs that wait for the disk, whose thread may outlive the pool
  const std::shared_ptr<std::atomic<int64_t>> num_waiting_bytes_ =
      std::make_shared<std::atomic<int64_t>>(0);
  // writes the logs, so that no disk delays the answers
  DiskQueue disk_;
};

}  // namespace replicant::fleet
