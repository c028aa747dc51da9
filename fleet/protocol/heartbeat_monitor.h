#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/rpc/server.h"
#include "fleet/protocol/heartbeat.h"

namespace replicant::fleet {

// Keeps the latest heartbeat of each role of a fleet, and the answer to it.
//
//   HeartbeatMonitor monitor;
//   Server server(context, SupervisionProtocol(), options);
//   monitor.AttachTo(server);
//   monitor.Expect({"actor", 3}, /*incarnation=*/1);
//
// Only expected roles are kept, so that no other sender can fill the memory or
// speak for a process that was replaced. Any other sender is told to stop.
//
// Thread-safety: all methods may be called from any thread.
class HeartbeatMonitor {
 public:
  struct Entry {
    Heartbeat beat;
    Clock::TimePoint time;  // of its arrival
  };

  // `clock` must outlive the monitor.
  explicit HeartbeatMonitor(Clock& clock = Clock::Real()) : clock_(clock) {}
  HeartbeatMonitor(const HeartbeatMonitor&) = delete;
  HeartbeatMonitor& operator=(const HeartbeatMonitor&) = delete;

  // Makes `server` pass heartbeats to this object, which must outlive its loop.
  void AttachTo(rpc::Server& server);
  // Records a heartbeat and returns the answer.
  BeatReply Receive(Heartbeat beat) EXCLUDES(mutex_);

  // Accepts only this incarnation of `id` from now on and forgets the heartbeat
  // of an older one.
  void Expect(const RoleId& id, uint32_t incarnation) EXCLUDES(mutex_);
  // Tells an expected role to drain and end, in the answers to its heartbeats.
  void OrderStop(const RoleId& id, std::string reason) EXCLUDES(mutex_);

  // Records that the role's process has ended: its endpoint leads nowhere.
  void NoteEnd(const RoleId& id) EXCLUDES(mutex_);

  // std::nullopt before the expected incarnation's first heartbeat.
  std::optional<Entry> Latest(const RoleId& id) const EXCLUDES(mutex_);
  // The latest heartbeat of every role that has sent one, ordered by role and
  // index.
  std::vector<Entry> All() const EXCLUDES(mutex_);
  // The latest heartbeat of every role that has sent one since the last call
  // with this cursor, the earliest first; 0 is a new cursor. O(those roles), so
  // that a loop need not look at silent ones.
  std::vector<Entry> NewSince(uint64_t* cursor) const EXCLUDES(mutex_);

 private:
  struct Role {
    uint32_t incarnation = 0;
    std::optional<Entry> latest;
    // number of the latest heartbeat among all, and its place in by_arrival_
    uint64_t arrival = 0;
    std::list<const Role*>::iterator place;
    BeatReply reply;         // its order and reason
    bool has_ended = false;  // a heartbeat may still be on its way
  };

  Clock& clock_;
  mutable Mutex mutex_;
  std::map<RoleId, Role> roles_ GUARDED_BY(mutex_);
  // the roles that have sent a heartbeat, the latest last
  std::list<const Role*> by_arrival_ GUARDED_BY(mutex_);
  uint64_t num_arrivals_ GUARDED_BY(mutex_) = 0;
  // of the processes that run and have told theirs
  std::map<RoleId, std::string> endpoints_ GUARDED_BY(mutex_);
};

}  // namespace replicant::fleet
