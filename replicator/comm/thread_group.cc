#include "replicator/comm/thread_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

namespace replicant::comm {
namespace {

// About 20 us: longer than members in step are apart, shorter than a sleep.
constexpr int kSpins = 500;

}  // namespace

ThreadGroup::ThreadGroup(int size, const CommunicatorOptions& options,
                         Naming naming)
    : options_(options),
      naming_(naming),
      // a member that spins must not displace the one that it waits for
      spins_(size <= CpuSet::OfThisThread().size() ? kSpins : 1),
      slots_(static_cast<size_t>(size)) {}

void ThreadGroup::Enter(int member, const Collective& collective) {
  Slot& slot = slots_[static_cast<size_t>(member)];
  slot.call = collective;
  ++slot.num_calls;
  Barrier(member);
  CheckCalls();
}

void ThreadGroup::Abort(const std::string& reason) {
  const MutexLock lock(mutex_);
  if (is_aborted_.load()) return;
  reason_ = reason;
  is_aborted_.store(true);
  arrived_.NotifyAll();
}

std::string ThreadGroup::Failure() const {
  const MutexLock lock(mutex_);
  return reason_;
}

bool ThreadGroup::HaveAllArrived(uint64_t barrier) const {
  return std::all_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.arrivals.load() >= barrier;
  });
}

void ThreadGroup::Barrier(int member, bool has_deadline) {
  ThrowIfAborted(member);
  const uint64_t barrier = ++slots_[static_cast<size_t>(member)].arrivals;
  // the last to come wakes the others: one that found it missing counted itself
  // before it looked
  if (num_sleepers_.load() > 0 && HaveAllArrived(barrier)) {
    const MutexLock lock(mutex_);
    arrived_.NotifyAll();
  }
  for (int i = 0; i < spins_; ++i) {
    if (HaveAllArrived(barrier)) return;
    _mm_pause();
  }
  Sleep(member, barrier, has_deadline);
}

void ThreadGroup::Sleep(int member, uint64_t barrier, bool has_deadline) {
  const Clock::TimePoint deadline = Clock::Real().Now() + options_.timeout;
  const auto is_over = [&] {
    return HaveAllArrived(barrier) || is_aborted_.load();
  };
  ++num_sleepers_;
  bool has_met = true;
  {
    const MutexLock lock(mutex_);
    if (has_deadline) {
      has_met = Clock::Real().WaitUntil(mutex_, arrived_, deadline, is_over);
    } else {
      while (!is_over()) arrived_.Wait(mutex_);
    }
  }
  --num_sleepers_;
  if (!has_met) Abort(DescribeMissing(member, barrier));
  // a barrier that all have reached counts, even if the group failed afterwards
  if (!HaveAllArrived(barrier)) ThrowIfAborted(member);
}

std::string ThreadGroup::DescribeMissing(int member, uint64_t barrier) const {
  const Slot& own = slots_[static_cast<size_t>(member)];
  std::vector<std::string> missing;
  for (size_t m = 0; m < slots_.size(); ++m) {
    if (slots_[m].arrivals.load() >= barrier) continue;
    missing.push_back(fmt::format("{} {} (in call {})", naming_.member, m,
                                  slots_[m].num_calls.load()));
  }
  return fmt::format(
      "{} {} of {} waited {} s in call {}, {}, for {}", naming_.member, member,
      size(), static_cast<double>(options_.timeout.count()) / 1e3,
      own.num_calls.load(), own.call.ToString(), fmt::join(missing, ", "));
}

void ThreadGroup::CheckCalls() {
  const Collective& first = slots_[0].call;
  for (size_t m = 1; m < slots_.size(); ++m) {
    const Collective& other = slots_[m].call;
    const bool is_same = first.kind == other.kind && first.op == other.op &&
                         first.source == other.source &&
                         first.factor == other.factor &&
                         first.in.dtype() == other.in.dtype() &&
                         first.in.size_bytes() == other.in.size_bytes();
    if (is_same) continue;
    const std::string why =
        fmt::format("the {0}s call different things: {0} 0 {1}, {0} {2} {3}",
                    naming_.member, first.ToString(), m, other.ToString());
    Abort(why);
    throw CommError(why);
  }
}

void ThreadGroup::ThrowIfAborted(int member) {
  if (!is_aborted_.load()) return;
  const MutexLock lock(mutex_);
  throw CommError(naming_.transport.empty()
                      ? reason_
                      : fmt::format("{}, {} {} of {}: {}", naming_.transport,
                                    naming_.member, member, size(), reason_));
}

void CopyTensor(const TensorView& from, std::byte* to) {
  if (from.size_bytes() == 0 || from.data() == to) return;
  std::memcpy(to, from.data(), from.size_bytes());
}

}  // namespace replicant::comm
