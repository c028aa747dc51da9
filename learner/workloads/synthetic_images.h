#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "learner/data/positioned_pipeline.h"
#include "replicator/input.h"

namespace replicant::learner {

struct SyntheticImagesOptions {
  int64_t batch_size = 32;  // of all pipelines together
  int64_t side = 32;        // pixels
  int64_t num_classes = 10;
  uint64_t seed = 0;
};

// Makes labelled images that a network can learn to classify, for runs without
// a data set. Each class is a wave across the image with its own direction,
// length and colours, at a random phase and under noise.
//
// Inputs: "image" [B, side, side, 3] u8 and "label" [B] i32. Image i of the run
// is a function of the seed and i, so any number of pipelines gives the same
// batches together. The images never end, and Next() never waits.
//
// Thread-safety: one thread at a time.
class SyntheticImages : public data::PositionedPipeline {
 public:
  // Throws InvalidArgument unless the pipelines divide the batch evenly.
  SyntheticImages(const SyntheticImagesOptions& options,
                  const replicator::InputContext& context);

  const std::vector<replicator::InputSpec>& specs() const override {
    return specs_;
  }
  replicator::NextResult Next(
      Clock::TimePoint deadline,
      std::span<const MutableTensorView> batch) override;

  int64_t position() const override { return position_; }
  void set_position(int64_t position) override { position_ = position; }
  void SetPaused(bool is_paused) override {
    is_paused_ = is_paused;
    is_drained_ = false;
  }
  bool is_drained() const override { return is_drained_; }

 private:
  // Writes image `number` of the run, [side, side, 3]; returns its class.
  int32_t Draw(int64_t number, std::span<uint8_t> image);

  SyntheticImagesOptions options_;
  replicator::InputContext context_;
  int64_t rows_;       // of this pipeline in a batch
  int64_t first_row_;  // the number of the first of them
  std::vector<replicator::InputSpec> specs_;
  int64_t position_ = 0;
  bool is_paused_ = false;
  bool is_drained_ = false;
  // sine and cosine of the wave along a row and a column, [side] each
  std::vector<float> row_sin_, row_cos_, column_sin_, column_cos_;
};

}  // namespace replicant::learner
