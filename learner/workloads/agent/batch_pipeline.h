#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "agents/task_spec.h"
#include "core/replicator/input.h"
#include "core/tensor/host_buffer.h"
#include "replay/client/batch_source.h"
#include "replay/format/frame_codec.h"

namespace replicant::learner {

// Draws batches of transitions and lays them out as the inputs of
// agents::d4pg::AddBatchInputs(): the frames of a stack become the channels of
// one image, oldest first.
//
// Thread-safety: one thread at a time.
class TransitionPipeline : public replicator::InputPipeline {
 public:
  // `source` outlives the pipeline; null in a process that draws nothing.
  // `num_threads` threads decode compressed frames and interleave stacks.
  TransitionPipeline(const agents::TaskSpec& task, int64_t batch_size,
                     int num_threads, replay::BatchSource* source);

  const std::vector<replicator::InputSpec>& specs() const override {
    return specs_;
  }
  // Throws CommError if the source's batches do not fit the task.
  replicator::NextResult Next(
      Clock::TimePoint deadline,
      std::span<const MutableTensorView> batch) override;

  // The batch that Next() drew last.
  const replay::Batch& batch() const { return batch_; }
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
    HostBuffer stacks;
  };

  // Writes the stacks of batch_ as the images of the network.
  void WriteFrames(const MutableTensorView& observations,
                   const MutableTensorView& next_observations);

  const agents::TaskSpec task_;
  const int64_t batch_size_;
  // by thread, each with room for two stacks
  std::vector<ThreadMemory> threads_;
  replay::BatchSource* const source_;
  std::vector<replicator::InputSpec> specs_;
  replay::Batch batch_;
  double wait_seconds_ = 0.0;
  bool is_drained_ = false;
};

}  // namespace replicant::learner
