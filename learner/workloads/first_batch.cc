#include "learner/workloads/first_batch.h"

#include <algorithm>

#include "base/images/encode_png.h"

namespace replicant::learner {

replicator::NextResult FirstBatch::Next(
    Clock::TimePoint deadline, std::span<const MutableTensorView> batch) {
  const replicator::NextResult result = Read(deadline, batch);
  if (result == replicator::NextResult::kOk) --num_left_;
  return result;
}

replicator::NextResult FirstBatch::Read(
    Clock::TimePoint deadline, std::span<const MutableTensorView> batch) {
  if (num_left_ <= 0) return replicator::NextResult::kTimeout;
  const replicator::NextResult result = images_->Next(deadline, batch);
  if (result != replicator::NextResult::kOk || !is_first_) return result;
  is_first_ = false;
  const Shape& shape = batch[0].shape();
  const int64_t side = shape[1];
  const int64_t columns = std::min(shape[0], kMaxColumns);
  const int64_t rows = std::min(shape[0] / columns, kMaxRows);
  const auto num_bytes = static_cast<size_t>(rows * columns * side * side * 3);
  const MutexLock lock(mutex_);
  grid_ = data::Tile(batch[0].Span<uint8_t>().first(num_bytes), side, rows,
                     columns);
  return result;
}

replicator::NextResult FirstBatch::NextAhead(
    Clock::TimePoint deadline, std::span<const MutableTensorView> batch) {
  const replicator::NextResult result = Read(deadline, batch);
  is_ahead_ = result == replicator::NextResult::kOk;
  return result;
}

}  // namespace replicant::learner
