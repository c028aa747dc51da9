#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"

namespace replicant::data {

// The order in which a run sees a source's examples: every epoch has each of
// them once, in its own order, which is a function of the seed and the epoch.
//
// Without blocks, an epoch is a random permutation. Blocks, such as shards,
// come in random order, and the examples are shuffled within windows of that
// sequence, so that few blocks are read at a time.
//
// Thread-safety: any thread. Keeps the orders of two epochs, 8 bytes per
// example.
class EpochOrder {
 public:
  // Examples that are shuffled together if there are blocks.
  static constexpr int64_t kWindow = 8192;

  // `block_sizes` come from ImageSource::BlockSizes().
  EpochOrder(std::vector<int64_t> block_sizes, uint64_t seed);

  int64_t size() const { return size_; }
  // The example at place `position` >= 0 of the run, in epoch position /
  // size(). Amortised O(1).
  int64_t At(int64_t position) EXCLUDES(mutex_);

 private:
  using Order = std::shared_ptr<const std::vector<int64_t>>;

  Order Of(int64_t epoch) EXCLUDES(mutex_);
  std::vector<int64_t> Make(int64_t epoch) const;

  const std::vector<int64_t> block_sizes_;
  const uint64_t seed_;
  int64_t size_ = 0;
  Mutex mutex_;
  struct Entry {
    int64_t epoch = -1;
    Order order;
  };
  // epoch e is in entry e modulo 2
  Entry entries_[2] GUARDED_BY(mutex_);
};

}  // namespace replicant::data
