#include "core/comm/thread_communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <utility>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/thread.h"

namespace replicant::comm {
namespace {

constexpr size_t kCacheLine = 64;
// About 20 us: longer than ranks in step are apart, shorter than a sleep costs.
constexpr int kSpins = 500;

// What the ranks share.
class ThreadGroup {
 public:
  ThreadGroup(int size, const CommunicatorOptions& options)
      : options_(options),
        // a rank that spins must not keep the one it waits for from running
        spins_(size <= CpuSet::OfThisThread().size() ? kSpins : 1),
        slots_(static_cast<size_t>(size)) {}

  int size() const { return static_cast<int>(slots_.size()); }
  const CommunicatorOptions& options() const { return options_; }
  const Collective& call_of(size_t rank) const { return slots_[rank].call; }

  // Shows the others what this rank calls and waits until all have come.
  // Throws CommError unless they call the same.
  void Enter(int rank, const Collective& collective) {
    Slot& slot = slots_[static_cast<size_t>(rank)];
    slot.call = collective;
    ++slot.num_calls;
    Meet(rank);
    CheckCalls();
  }
  // Waits until all ranks are done with this rank's memory.
  void Leave(int rank) { Meet(rank); }

  void Abort(const std::string& reason) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (is_aborted_.load()) return;
    reason_ = reason;
    is_aborted_.store(true);
    arrived_.NotifyAll();
  }

  // The new group of `color` that is made at the `number`-th split: the first
  // to ask makes it.
  std::shared_ptr<ThreadGroup> Subgroup(uint64_t number, int color, int size)
      EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::shared_ptr<ThreadGroup>& group = subgroups_[{number, color}];
    if (group == nullptr) {
      group = std::make_shared<ThreadGroup>(size, options_);
    }
    return group;
  }
  void ForgetSubgroups(uint64_t number) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::erase_if(subgroups_, [&](const auto& entry) {
      return entry.first.first == number;
    });
  }

 private:
  // padded: others watch `arrivals` while the rank writes its call
  // NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
  struct alignas(kCacheLine) Slot {
    // the rank's own until it arrives, everybody's to read until all leave
    Collective call;
    // counts how often the rank came to a meeting
    alignas(kCacheLine) std::atomic<uint64_t> arrivals{0};
    std::atomic<uint64_t> num_calls{0};
  };

  bool HaveAllArrived(uint64_t meeting) const {
    return std::all_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
      return slot.arrivals.load() >= meeting;
    });
  }

  void Meet(int rank) {
    ThrowIfAborted(rank);
    const uint64_t meeting = ++slots_[static_cast<size_t>(rank)].arrivals;
    // whoever found this rank missing has counted itself before it looked
    if (num_sleepers_.load() > 0) {
      const MutexLock lock(mutex_);
      arrived_.NotifyAll();
    }
    for (int i = 0; i < spins_; ++i) {
      if (HaveAllArrived(meeting)) return;
      _mm_pause();
    }
    Sleep(rank, meeting);
  }

  void Sleep(int rank, uint64_t meeting) EXCLUDES(mutex_) {
    const Clock::TimePoint deadline = Clock::Real().Now() + options_.timeout;
    ++num_sleepers_;
    bool has_met = false;
    {
      const MutexLock lock(mutex_);
      has_met = Clock::Real().WaitUntil(mutex_, arrived_, deadline, [&] {
        return HaveAllArrived(meeting) || is_aborted_.load();
      });
    }
    --num_sleepers_;
    if (!has_met) Abort(DescribeMissing(rank, meeting));
    // a meeting that took place counts, whatever happened afterwards
    if (!HaveAllArrived(meeting)) ThrowIfAborted(rank);
  }

  std::string DescribeMissing(int rank, uint64_t meeting) const {
    const Slot& own = slots_[static_cast<size_t>(rank)];
    std::vector<std::string> missing;
    for (size_t r = 0; r < slots_.size(); ++r) {
      if (slots_[r].arrivals.load() >= meeting) continue;
      missing.push_back(
          fmt::format("rank {} (in call {})", r, slots_[r].num_calls.load()));
    }
    return fmt::format(
        "rank {} of {} waited {} s in call {}, {}, for {}", rank, size(),
        static_cast<double>(options_.timeout.count()) / 1e3,
        own.num_calls.load(), own.call.ToString(), fmt::join(missing, ", "));
  }

  // All ranks look at the same calls and come to the same end.
  void CheckCalls() {
    const Collective& first = slots_[0].call;
    for (size_t r = 1; r < slots_.size(); ++r) {
      const Collective& other = slots_[r].call;
      const bool is_same = first.kind == other.kind && first.op == other.op &&
                           first.source == other.source &&
                           first.factor == other.factor &&
                           first.in.dtype() == other.in.dtype() &&
                           first.in.size_bytes() == other.in.size_bytes();
      if (is_same) continue;
      const std::string why =
          fmt::format("the ranks call different things: rank 0 {}, rank {} {}",
                      first.ToString(), r, other.ToString());
      Abort(why);
      throw CommError(why);
    }
  }

  void ThrowIfAborted(int rank) EXCLUDES(mutex_) {
    if (!is_aborted_.load()) return;
    const MutexLock lock(mutex_);
    throw CommError(
        fmt::format("threads, rank {} of {}: {}", rank, size(), reason_));
  }

  const CommunicatorOptions options_;
  const int spins_;
  std::vector<Slot> slots_;
  std::atomic<int> num_sleepers_{0};
  std::atomic<bool> is_aborted_{false};
  Mutex mutex_;
  CondVar arrived_;
  std::string reason_ GUARDED_BY(mutex_);
  std::map<std::pair<uint64_t, int>, std::shared_ptr<ThreadGroup>> subgroups_
      GUARDED_BY(mutex_);
};

void Copy(const TensorView& from, std::byte* to) {
  if (from.size_bytes() == 0 || from.data() == to) return;
  std::memcpy(to, from.data(), from.size_bytes());
}

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  std::string_view transport() const override { return "threads"; }

  std::unique_ptr<Communicator> Split(int color, int key) override {
    // everybody's wishes, from which all see who is where
    const int64_t own[2] = {color, key};
    std::vector<int64_t> all(2 * static_cast<size_t>(size()));
    AllGather(TensorView(DType::kI64, Shape({2}), own),
              MutableTensorView(DType::kI64, Shape({2 * size()}), all.data()));
    std::vector<std::pair<int64_t, int>> members;
    for (int r = 0; r < size(); ++r) {
      const auto at = 2 * static_cast<size_t>(r);
      if (all[at] == color) members.emplace_back(all[at + 1], r);
    }
    std::sort(members.begin(), members.end());
    const uint64_t number = num_splits_++;
    std::unique_ptr<Communicator> result;
    if (color >= 0) {
      const auto place = std::find_if(
          members.begin(), members.end(),
          [&](const auto& member) { return member.second == rank_; });
      result = std::make_unique<ThreadCommunicator>(
          group_->Subgroup(number, color, static_cast<int>(members.size())),
          static_cast<int>(place - members.begin()));
    }
    Barrier();
    if (rank_ == 0) group_->ForgetSubgroups(number);
    return result;
  }

  void Abort(const std::string& reason) override { group_->Abort(reason); }

 private:
  void DoRun(const Collective& c) override {
    group_->Enter(rank_, c);
    switch (c.kind) {
      case Collective::Kind::kAllReduce:
        ReduceOwnPart(c);
        break;
      case Collective::Kind::kAllGather:
        for (size_t r = 0; r < static_cast<size_t>(size()); ++r) {
          const TensorView& in = group_->call_of(r).in;
          Copy(in, c.out.data() + r * in.size_bytes());
        }
        break;
      case Collective::Kind::kReduceScatter:
        ReduceOwnRow(c);
        break;
      case Collective::Kind::kBroadcast:
        Copy(group_->call_of(static_cast<size_t>(c.source)).in, c.out.data());
        break;
      case Collective::Kind::kBarrier:
        break;
    }
    group_->Leave(rank_);
  }

  // One part of the elements, for all ranks.
  void ReduceOwnPart(const Collective& c) {
    inputs_.clear();
    outputs_.clear();
    for (size_t r = 0; r < static_cast<size_t>(size()); ++r) {
      inputs_.push_back(group_->call_of(r).in.data());
      outputs_.push_back(group_->call_of(r).out.data());
    }
    // whole cache lines, so that no two ranks write to one
    const Range part = PartOf(static_cast<size_t>(c.in.shape().num_elements()),
                              inputs_.size(), static_cast<size_t>(rank_),
                              kCacheLine / DTypeSize(c.in.dtype()));
    if (part.size() == 0) return;
    Reduce(c.op, c.in.dtype(), inputs_, outputs_, part.begin, part.end,
           c.factor);
  }

  void ReduceOwnRow(const Collective& c) {
    inputs_.clear();
    outputs_.assign(1, c.out.data());
    const size_t row = static_cast<size_t>(rank_) * c.out.size_bytes();
    for (size_t r = 0; r < static_cast<size_t>(size()); ++r) {
      inputs_.push_back(group_->call_of(r).in.data() + row);
    }
    Reduce(c.op, c.in.dtype(), inputs_, outputs_, 0,
           static_cast<size_t>(c.out.shape().num_elements()), c.factor);
  }

  const std::shared_ptr<ThreadGroup> group_;
  const int rank_;
  uint64_t num_splits_ = 0;
  // of the call under way; kept so that calls allocate nothing
  std::vector<const std::byte*> inputs_;
  std::vector<std::byte*> outputs_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(
    int size, const CommunicatorOptions& options) {
  if (size < 1) {
    throw InvalidArgument(fmt::format(
        "MakeThreadCommunicators: want at least 1 rank, got {}", size));
  }
  const auto group = std::make_shared<ThreadGroup>(size, options);
  std::vector<std::unique_ptr<Communicator>> communicators;
  communicators.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    communicators.push_back(std::make_unique<ThreadCommunicator>(group, rank));
  }
  return communicators;
}

}  // namespace replicant::comm
