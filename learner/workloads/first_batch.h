#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/images/image.h"
#include "base/mutex.h"
#include "learner/data/positioned_pipeline.h"

namespace replicant::learner {

// A pipeline that keeps its first images for a picture, can return batches
// ahead of their step, and gives no more batches than will be used.
//
// Thread-safety: as a pipeline; Take() may run concurrently with the other
// methods.
class FirstBatch : public data::PositionedPipeline {
 public:
  // `images` gives "image" [B, H, H, 3] u8 first. `num_left`, which outlives
  // the pipeline, is the number of batches that steps may still use, of all
  // pipelines that share it: they are called by one thread at a time.
  FirstBatch(std::unique_ptr<data::PositionedPipeline> images,
             int64_t* num_left)
      : images_(std::move(images)), num_left_(*num_left) {}

  // The first images of the first batch as one picture, up to kMaxRows rows of
  // kMaxColumns; nothing in later calls.
  std::optional<data::Image> Take() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return std::exchange(grid_, {});
  }

  const std::vector<replicator::InputSpec>& specs() const override {
    return images_->specs();
  }
  replicator::NextResult Next(
      Clock::TimePoint deadline,
      std::span<const MutableTensorView> batch) override;
  replicator::NextResult NextAhead(
      Clock::TimePoint deadline,
      std::span<const MutableTensorView> batch) override;
  void UseAhead() override {
    is_ahead_ = false;
    --num_left_;
  }

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
  // Next() without its count.
  replicator::NextResult Read(Clock::TimePoint deadline,
                              std::span<const MutableTensorView> batch)
      EXCLUDES(mutex_);

  std::unique_ptr<data::PositionedPipeline> images_;
  int64_t& num_left_;
  bool is_first_ = true;
  bool is_ahead_ = false;
  Mutex mutex_;
  std::optional<data::Image> grid_ GUARDED_BY(mutex_);
};

}  // namespace replicant::learner
