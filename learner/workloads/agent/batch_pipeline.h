#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "agents/agent.h"
#include "core/replicator/input.h"
#include "core/tensor/host_buffer.h"
#include "replay/client/batch_source.h"
#include "replay/format/frame_codec.h"

namespace replicant::learner {

// Draws batches of transitions and lays them out as the inputs of
// agents::d4pg::AddBatchInputs(): the frames of a stack become the channels of
// one image, oldest first. Of windows it makes the n-step transitions, too.
//
// Thread-safety: one thread at a time.
class TransitionPipeline : public replicator::InputPipeline {
 public:
  // `source` outlives the pipeline; null in a process that draws nothing.
  // `num_threads` threads decode compressed frames and interleave stacks.
  TransitionPipeline(const agents::LearningSpec& spec, int64_t batch_size,
                     int num_threads, replay::BatchSource* source);

  const std::vector<replicator::InputSpec>& specs() const override {
    return specs_;
  }
  // Throws CommError if the source's batches do not fit the specification.
  replicator::NextResult Next(
      Clock::TimePoint deadline,
      std::span<const MutableTensorView> batch) override;

  // The batch that Next() drew last.
  const replay::Batch& batch() const { return batch_; }
  // R and D of its transitions (agents::TransitionBatch), [B] each.
  std::span<const float> returns() const {
    return spec_.window > 0 ? returns_ : batch_.rewards;
  }
  std::span<const float> discounts() const {
    return spec_.window > 0 ? discounts_ : batch_.discounts;
  }
  double wait_seconds() const { return wait_seconds_; }
  // Whether the last Next() found the source paused, with nothing left.
  bool is_drained() const { return is_drained_; }
  void SetPaused(bool is_paused) {
    source_->SetPaused(is_paused);
    is_drained_ = false;
  }

 private:
  struct ThreadMemory {
    replay::FrameDecoder decoder;
    HostBuffer frames;
  };
  using Views = std::span<const MutableTensorView>;

  // Write batch_ as the inputs of the network: states, images of the stacked
  // frames, and the steps of windows.
  void WriteStates(Views batch);
  void WriteFrames(Views batch);
  void WriteRowOfFrames(const replay::Batch::Frames& frames, int64_t row,
                        Views batch);
  void WriteSteps(Views batch);
  // Steps from o_t to the observation where the return of `row` bootstraps.
  int64_t NumReturnSteps(int64_t row) const;
  replay::BatchForm form() const {
    return {.stack = spec_.task.frame_stack, .window = spec_.window};
  }

  const agents::LearningSpec spec_;
  const int64_t batch_size_;
  // by thread, each with room for the frames of an item
  std::vector<ThreadMemory> threads_;
  replay::BatchSource* const source_;
  std::vector<replicator::InputSpec> specs_;
  replay::Batch batch_;
  // of windows
  std::vector<float> returns_, discounts_;
  double wait_seconds_ = 0.0;
  bool is_drained_ = false;
};

}  // namespace replicant::learner
