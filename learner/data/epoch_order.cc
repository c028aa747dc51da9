#include "learner/data/epoch_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace replicant::data {
namespace {

// Fisher and Yates' shuffle; the same on every machine.
void Shuffle(std::span<int64_t> values, RandomStream& random) {
  for (size_t i = values.size(); i > 1; --i) {
    const auto j =
        static_cast<size_t>(random.UniformInt(static_cast<int64_t>(i)));
    std::swap(values[i - 1], values[j]);
  }
}

}  // namespace

EpochOrder::EpochOrder(std::vector<int64_t> block_sizes, uint64_t seed)
    : block_sizes_(std::move(block_sizes)),
      seed_(seed),
      size_(std::accumulate(block_sizes_.begin(), block_sizes_.end(),
                            int64_t{0})) {
  REPLICANT_CHECK(size_ > 0, "no examples");
}

int64_t EpochOrder::At(int64_t position) {
  return (*Of(position / size_))[static_cast<size_t>(position % size_)];
}

EpochOrder::Order EpochOrder::Of(int64_t epoch) {
  const MutexLock lock(mutex_);
  Entry& entry = entries_[epoch % 2];
  if (entry.epoch != epoch) {
    entry = {
        .epoch = epoch,
        .order = std::make_shared<const std::vector<int64_t>>(Make(epoch))};
  }
  return entry.order;
}

std::vector<int64_t> EpochOrder::Make(int64_t epoch) const {
  RandomStream random(seed_, fmt::format("images/epoch-{}", epoch));
  std::vector<int64_t> blocks(block_sizes_.size());
  std::iota(blocks.begin(), blocks.end(), 0);
  Shuffle(blocks, random);
  std::vector<int64_t> begins(block_sizes_.size());
  std::exclusive_scan(block_sizes_.begin(), block_sizes_.end(), begins.begin(),
                      int64_t{0});
  std::vector<int64_t> order;
  order.reserve(static_cast<size_t>(size_));
  for (const int64_t block : blocks) {
    const auto at = static_cast<size_t>(block);
    for (int64_t i = 0; i < block_sizes_[at]; ++i) {
      order.push_back(begins[at] + i);
    }
  }
  const int64_t window = block_sizes_.size() == 1 ? size_ : kWindow;
  for (int64_t begin = 0; begin < size_; begin += window) {
    Shuffle(std::span(order).subspan(
                static_cast<size_t>(begin),
                static_cast<size_t>(std::min(window, size_ - begin))),
            random);
  }
  return order;
}

}  // namespace replicant::data
