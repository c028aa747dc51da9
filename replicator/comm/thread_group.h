#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "replicator/comm/communicator.h"

namespace replicant::comm {

// A barrier for the threads of one process that make the calls of a
// communicator. A member sees the arguments of the others.
//
// Any failure ends the group: every later barrier throws a CommError with the
// reason of the first failure, except a barrier at which all had arrived.
//
// Thread-safety: each member's calls from one thread at a time; Abort() from
// any thread.
class ThreadGroup {
 public:
  struct Naming {
    // Noun for a member in messages: "rank".
    std::string_view member;
    // Prefix of failures that the member did not find itself: "threads" gives
    // "threads, rank 0 of 2: REASON". Empty: no prefix.
    std::string_view transport = {};
  };

  // The texts of Naming must outlive this object.
  ThreadGroup(int size, const CommunicatorOptions& options, Naming naming);

  int size() const { return static_cast<int>(slots_.size()); }
  const CommunicatorOptions& options() const { return options_; }
  // May be called between Enter() and the next barrier.
  const Collective& call_of(size_t member) const { return slots_[member].call; }

  // Shows this member's call to the others and waits for them. Throws CommError
  // unless all make the same call.
  void Enter(int member, const Collective& collective);
  // Waits until all members have come.
  void Barrier(int member) { Barrier(member, /*has_deadline=*/true); }
  // The same without a deadline: others come after work that is sure to end.
  void BarrierAfterWork(int member) { Barrier(member, /*has_deadline=*/false); }

  void Abort(const std::string& reason) EXCLUDES(mutex_);
  // The reason of the first failure; empty without one.
  std::string Failure() const EXCLUDES(mutex_);

 private:
  static constexpr size_t kCacheLine = 64;

  // padded: others watch `arrivals` while the member writes its call
  // NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
  struct alignas(kCacheLine) Slot {
    // private to the member until it arrives, then read by all until all leave
    Collective call;
    // number of barriers that the member has come to
    alignas(kCacheLine) std::atomic<uint64_t> arrivals{0};
    std::atomic<uint64_t> num_calls{0};
  };

  void Barrier(int member, bool has_deadline);
  void Sleep(int member, uint64_t barrier, bool has_deadline) EXCLUDES(mutex_);
  bool HaveAllArrived(uint64_t barrier) const;
  std::string DescribeMissing(int member, uint64_t barrier) const;
  // All members compare the same calls and draw the same conclusion.
  void CheckCalls();
  void ThrowIfAborted(int member) EXCLUDES(mutex_);

  const CommunicatorOptions options_;
  const Naming naming_;
  const int spins_;
  std::vector<Slot> slots_;
  std::atomic<int> num_sleepers_{0};
  std::atomic<bool> is_aborted_{false};
  mutable Mutex mutex_;
  CondVar arrived_;
  std::string reason_ GUARDED_BY(mutex_);
};

// A tensor whose memory may be the caller's.
void CopyTensor(const TensorView& from, std::byte* to);

}  // namespace replicant::comm
