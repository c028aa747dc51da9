#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/images/image.h"
#include "base/mutex.h"
#include "learner/data/positioned_pipeline.h"

namespace replicant::learner {

// A pipeline that keeps its first images for a picture, and can return batches
// ahead of their step.
//
// Thread-safety: as a pipeline; Take() may run concurrently with the other
// methods.
class FirstBatch : public data::PositionedPipeline {
 public:
  // `images` gives "image" [B, H, H, 3] u8 first.
  explicit FirstBatch(std::unique_ptr<data::PositionedPipeline> images)
      : images_(std::move(images)) {}

  // The first images of the first batch as one picture, up to kMaxRows rows of
  // kMaxColumns; nothing in later calls.
  std::optional<data::Image> Take() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return std::exchange(grid_, {});
  }

  const std::vector<replicator::InputSpec>& specs() const override {
    return images_->specs();
  }
  replicator::NextResult Next(Clock::TimePoint deadline,
                              std::span<const MutableTensorView> batch) override
      EXCLUDES(mutex_);
  replicator::NextResult NextAhead(
      Clock::TimePoint deadline,
      std::span<const MutableTensorView> batch) override;
  void UseAhead() override { is_ahead_ = false; }
  // At most `num_batches` further batches will be used.
  void SetLimit(int64_t num_batches) { limit_ = position() + num_batches; }

  // Counts the batches that steps use or have used.
  int64_t position() const override {
    return images_->position() - (is_ahead_ ? 1 : 0);
  }
  void set_position(int64_t position) override {
    images_->set_position(position);
  }
  void SetPaused(bool is_paused) override { images_->SetPaused(is_paused); }
  bool is_drained() const override { return images_->is_drained(); }
  double WaitSeconds() const override { return images_->WaitSeconds(); }

  static constexpr int64_t kMaxRows = 8, kMaxColumns = 8;

 private:
  std::unique_ptr<data::PositionedPipeline> images_;
  bool is_first_ = true;
  bool is_ahead_ = false;
  int64_t limit_ = std::numeric_limits<int64_t>::max();  // of position()
  Mutex mutex_;
  std::optional<data::Image> grid_ GUARDED_BY(mutex_);
};

}  // namespace replicant::learner
