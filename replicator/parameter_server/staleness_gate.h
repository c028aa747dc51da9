#pragma once

#include <cstdint>
#include <map>

namespace replicant::replicator {

// Decides when a worker may pull a server's variables and when it may push the
// gradient computed from them, so that no gradient is too stale. The version of
// the variables counts pushes; the staleness of a push is the number of pushes
// by others since its pull:
//
//   staleness = version before the push - version of the pull <= limit
//
// A push waits while it would make another worker's too stale, and a pull waits
// while limit + 1 workers have pulled and not pushed yet. With v_0 <= v_1 <=
// ... the versions of those pulls this keeps
//
//   version + j - v_j <= limit for every j,
//
// so the worker with the oldest pull may always push. No worker waits forever
// if every worker that has pulled goes on to push or is dropped.
//
// Thread-safety: one thread at a time.
class StalenessGate {
 public:
  explicit StalenessGate(int64_t limit, int64_t version = 0)
      : limit_(limit), version_(version) {}

  int64_t version() const { return version_; }
  // Whether the worker has pulled and not pushed.
  bool Has(uint32_t worker) const { return pulled_.contains(worker); }
  // Whether no other worker has pulled and not pushed.
  bool IsEmptyBut(uint32_t worker) const {
    return pulled_.size() == (Has(worker) ? 1 : 0);
  }

  bool CanPull() const;
  // Precondition: CanPull(), and not Has(worker) (checked).
  void Pull(uint32_t worker);
  // Precondition: Has(worker) (checked). O(workers log workers).
  bool CanPush(uint32_t worker) const;
  // Counts a push and returns its staleness. Precondition: CanPush() (checked).
  int64_t Push(uint32_t worker);
  // Forgets a worker's pull, if there is one.
  void Drop(uint32_t worker) { pulled_.erase(worker); }

 private:
  int64_t limit_;
  int64_t version_;
  // by worker: the version
  std::map<uint32_t, int64_t> pulled_;
};

}  // namespace replicant::replicator
