#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "learner/data/epoch_order.h"
#include "learner/data/image_source.h"
#include "learner/data/positioned_pipeline.h"

namespace replicant::data {

struct ImagePipelineOptions {
  std::shared_ptr<const ImageSource> source;
  int64_t batch_size = 32;   // of all pipelines together
  int64_t side = 224;        // pixels
  int64_t num_classes = 10;  // at least the source's
  uint64_t seed = 0;
  // Training: endless, in the order of EpochOrder, augmented by `augmentation`.
  // Otherwise one pass over the source in its own order, through View(crop).
  bool is_training = true;
  AugmentationConfig augmentation = {};
  double evaluation_crop = 0.875;
  int num_threads = 1;  // 0: Next() decodes
  int num_batches_ahead = 2;
};

// Reads batches of a source. Batch b of the run has the examples at places [b *
// batch_size, (b + 1) * batch_size) of the order; a pipeline returns its rows
// of the batch and reads no others. Any number of pipelines thus gives the same
// batches together, and an epoch has each example once.
//
// Inputs: "image" [B, side, side, 3] u8 and "label" [B] i32; in an evaluation
// also "weight" [B] f32, which is 0 for a row without an example. Rows after
// the last example are black and of class 0.
//
// An image that is damaged or missing is logged once and left out: training
// takes the next readable one in the order, an evaluation gives it weight 0.
//
// Its threads decode ahead. The result does not depend on their number.
//
// Thread-safety: as InputPipeline.
class ImagePipeline : public PositionedPipeline {
 public:
  // Throws InvalidArgument if the batch size is not a multiple of the number of
  // pipelines, or if the source has more classes than num_classes.
  ImagePipeline(const ImagePipelineOptions& options,
                const replicator::InputContext& context);
  ~ImagePipeline() override;

  const std::vector<replicator::InputSpec>& specs() const override {
    return specs_;
  }
  // Throws IoError if kMaxUnreadable successive images are damaged, and what
  // ImageReader::Read() throws for other reasons.
  replicator::NextResult Next(
      Clock::TimePoint deadline,
      std::span<const MutableTensorView> batch) override;

  int64_t position() const override { return position_; }
  void set_position(int64_t position) override;
  void SetPaused(bool is_paused) override {
    is_paused_ = is_paused;
    is_drained_ = false;
  }
  bool is_drained() const override { return is_drained_; }
  double WaitSeconds() const override { return wait_s_; }

  // Batches of one pass of an evaluation.
  int64_t num_batches() const;

  static constexpr int64_t kMaxUnreadable = 1000;

 private:
  // The rows of this pipeline in a batch.
  struct Rows {
    std::span<uint8_t> image;  // [rows, side, side, 3]
    std::span<int32_t> label;  // [rows]
    std::span<float> weight;   // [rows]; empty in training
  };
  // A batch that is read ahead.
  struct Slot {
    std::vector<uint8_t> image;
    std::vector<int32_t> label;
    std::vector<float> weight;
    int64_t num_done = 0;  // rows

    Rows rows() { return {image, label, weight}; }
  };

  // Reads row `row` of batch `number` of this pipeline.
  void ReadRow(ImageReader& reader, int64_t number, int64_t row,
               const Rows& rows);
  void ReadTrainingRow(ImageReader& reader, int64_t place, int64_t row,
                       const Rows& rows);
  void ReadEvaluationRow(ImageReader& reader, int64_t place, int64_t row,
                         const Rows& rows);
  std::span<uint8_t> ImageOf(int64_t row, const Rows& rows) const;
  // Logs an example that cannot be read, once.
  void AddUnreadable(int64_t index, const DamagedImage& error) EXCLUDES(mutex_);

  Slot& SlotOf(int64_t number) {
    return slots_[static_cast<size_t>(number) % slots_.size()];
  }
  void StartThreads();
  void StopThreads() EXCLUDES(mutex_);
  void ReadAhead() EXCLUDES(mutex_);
  // Whether a thread may begin a row.
  bool HasWork() const REQUIRES(mutex_);
  // Waits for batch `position_`.
  bool Await(Clock::TimePoint deadline) EXCLUDES(mutex_);

  const ImagePipelineOptions options_;
  const replicator::InputContext context_;
  const int64_t rows_;       // of this pipeline in a batch
  const int64_t first_row_;  // the number of the first of them
  std::vector<replicator::InputSpec> specs_;
  EpochOrder order_;
  std::unique_ptr<ImageReader> reader_;  // of Next(), without threads

  int64_t position_ = 0;
  bool is_paused_ = false;
  bool is_drained_ = false;
  double wait_s_ = 0.0;

  mutable Mutex mutex_;
  CondVar has_work_, has_batch_;
  bool is_stopped_ GUARDED_BY(mutex_) = false;
  // the next row for a thread to take
  int64_t next_batch_ GUARDED_BY(mutex_) = 0;
  int64_t next_row_ GUARDED_BY(mutex_) = 0;
  int64_t num_taken_ GUARDED_BY(mutex_) = 0;  // batches, by Next()
  std::exception_ptr error_ GUARDED_BY(mutex_);
  std::set<int64_t> unreadable_ GUARDED_BY(mutex_);
  // A slot's rows belong to the threads that took them, then to Next();
  // num_done is guarded by mutex_.
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace replicant::data
