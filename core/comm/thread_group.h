#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/mutex.h"
#include "core/comm/communicator.h"

namespace replicant::comm {

// The meeting point of the threads of one process in the calls of a
// communicator. A member sees the arguments of the others.
//
// Any failure ends the group: every later meeting throws a CommError with the
// reason of the first failure, except a meeting at which all had arrived.
//
// Thread-safety: each member's calls from one thread at a time; Abort() from
// any thread.
class ThreadGroup {
 public:
  struct Naming {
    // The word for a member in messages: "rank".
    std::string_view member;
    // In front of what a member has not found out itself: "threads" gives
    // "threads, rank 0 of 2: REASON"; empty for the reason alone.
    std::string_view transport = {};
  };

  // Naming's texts outlive this.
  ThreadGroup(int size, const CommunicatorOptions& options, Naming naming);

  int size() const { return static_cast<int>(slots_.size()); }
  const CommunicatorOptions& options() const { return options_; }
  // Between Enter() and the meeting after it.
  const Collective& call_of(size_t member) const { return slots_[member].call; }

  // Shows this member's call to the others and waits until all have come.
  // Throws CommError unless all make the same call.
  void Enter(int member, const Collective& collective);
  // Waits until all have come.
  void Meet(int member) { Meet(member, /*has_deadline=*/true); }
  // The same, where another member comes after work that ends by itself.
  void MeetAfterWork(int member) { Meet(member, /*has_deadline=*/false); }

  void Abort(const std::string& reason) EXCLUDES(mutex_);

 private:
  static constexpr size_t kCacheLine = 64;

  // padded: others watch `arrivals` while the member writes its call
  // NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
  struct alignas(kCacheLine) Slot {
    // the member's own until it arrives, everybody's to read until all leave
    Collective call;
    // counts how often the member came to a meeting
    alignas(kCacheLine) std::atomic<uint64_t> arrivals{0};
    std::atomic<uint64_t> num_calls{0};
  };

  void Meet(int member, bool has_deadline);
  void Sleep(int member, uint64_t meeting, bool has_deadline) EXCLUDES(mutex_);
  bool HaveAllArrived(uint64_t meeting) const;
  std::string DescribeMissing(int member, uint64_t meeting) const;
  // All members look at the same calls and come to the same end.
  void CheckCalls();
  void ThrowIfAborted(int member) EXCLUDES(mutex_);

  const CommunicatorOptions options_;
  const Naming naming_;
  const int spins_;
  std::vector<Slot> slots_;
  std::atomic<int> num_sleepers_{0};
  std::atomic<bool> is_aborted_{false};
  Mutex mutex_;
  CondVar arrived_;
  std::string reason_ GUARDED_BY(mutex_);
};

// A tensor to memory that may be its own.
void CopyTensor(const TensorView& from, std::byte* to);

}  // namespace replicant::comm
