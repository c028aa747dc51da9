#include "replicator/comm/thread_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/mutex.h"
#include "replicator/comm/thread_group.h"

namespace replicant::comm {
namespace {

constexpr size_t kCacheLine = 64;

// State shared by the ranks.
struct Shared {
  Shared(int size, const CommunicatorOptions& options)
      : ranks(size, options, {.member = "rank", .transport = "threads"}) {}

  // The group of `color` of the split with this number. The first rank to ask
  // makes it.
  std::shared_ptr<Shared> Subgroup(uint64_t number, int color, int size)
      EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    std::shared_ptr<Shared>& group = subgroups[{number, color}];
    if (group == nullptr) {
      group = std::make_shared<Shared>(size, ranks.options());
    }
    return group;
  }
  void ForgetSubgroups(uint64_t number) EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    std::erase_if(subgroups, [&](const auto& entry) {
      return entry.first.first == number;
    });
  }

  ThreadGroup ranks;
  Mutex mutex;
  std::map<std::pair<uint64_t, int>, std::shared_ptr<Shared>> subgroups
      GUARDED_BY(mutex);
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Shared> shared, int rank)
      : shared_(std::move(shared)), group_(shared_->ranks), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_.size(); }
  std::string_view transport() const override { return "threads"; }

  std::unique_ptr<Communicator> Split(int color, int key) override {
    const std::map<int, std::vector<int>> parts = GatherParts(color, key);
    const uint64_t number = num_splits_++;
    std::unique_ptr<Communicator> result;
    if (color >= 0) {
      const std::vector<int>& members = parts.at(color);
      result = std::make_unique<ThreadCommunicator>(
          shared_->Subgroup(number, color, static_cast<int>(members.size())),
          static_cast<int>(std::ranges::find(members, rank_) -
                           members.begin()));
    }
    Barrier();
    if (rank_ == 0) shared_->ForgetSubgroups(number);
    return result;
  }

  void Abort(const std::string& reason) override { group_.Abort(reason); }
  std::string Failure() const override { return group_.Failure(); }

 private:
  void DoRun(const Collective& c) override {
    group_.Enter(rank_, c);
    switch (c.kind) {
      case Collective::Kind::kAllReduce:
        ReduceOwnPart(c);
        break;
      case Collective::Kind::kAllGather:
        for (size_t r = 0; r < static_cast<size_t>(size()); ++r) {
          const TensorView& in = group_.call_of(r).in;
          CopyTensor(in, c.out.data() + r * in.size_bytes());
        }
        break;
      case Collective::Kind::kReduceScatter:
        ReduceOwnRow(c);
        break;
      case Collective::Kind::kBroadcast:
        CopyTensor(group_.call_of(static_cast<size_t>(c.source)).in,
                   c.out.data());
        break;
      case Collective::Kind::kBarrier:
        break;
    }
    // wait until no rank reads this one's memory
    group_.Barrier(rank_);
  }

  // Computes one part of the elements for all ranks.
  void ReduceOwnPart(const Collective& c) {
    inputs_.clear();
    outputs_.clear();
    for (size_t r = 0; r < static_cast<size_t>(size()); ++r) {
      inputs_.push_back(group_.call_of(r).in.data());
      outputs_.push_back(group_.call_of(r).out.data());
    }
    // whole cache lines, so that no two ranks write to the same one
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
      inputs_.push_back(group_.call_of(r).in.data() + row);
    }
    Reduce(c.op, c.in.dtype(), inputs_, outputs_, 0,
           static_cast<size_t>(c.out.shape().num_elements()), c.factor);
  }

  const std::shared_ptr<Shared> shared_;
  ThreadGroup& group_;
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
  const auto shared = std::make_shared<Shared>(size, options);
  std::vector<std::unique_ptr<Communicator>> communicators;
  communicators.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    communicators.push_back(std::make_unique<ThreadCommunicator>(shared, rank));
  }
  return communicators;
}

}  // namespace replicant::comm
