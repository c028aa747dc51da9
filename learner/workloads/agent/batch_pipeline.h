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

// Batches of transitions as the inputs of agents::d4pg::AddBatchInputs(): the
// frames of a stack become the channels of one image, oldest first.
//
// Thread-safety: one thread at a time.
class TransitionPipeline : public replicator::InputPipeline {
 public:
  // `source` outlives the pipeline; null where nothing is drawn. Frames are
  // decoded, if they are not, and put in order on `num_threads`.
  TransitionPipeline(const agents::TaskSpec& task, int64_t batch_size,
                     int num_threads, replay::BatchSource* source);

  const std::vector<replicator::InputSpec>& specs() const override {
    return specs_;
  }
  // Throws CommError if the source's batches are not of the task.
  replicator::NextResult Next(
      Clock::TimePoint deadline,
      std::span<const MutableTensorView> batch) override;

  // What Next() gave last.
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

  // The frames of batch_, as the network takes them.
  void WriteFrames(const MutableTensorView& observations,
                   const MutableTensorView& next_observations);

  const agents::TaskSpec task_;
  const int64_t batch_size_;
  // of every thread: room for two stacks
  std::vector<ThreadMemory> threads_;
  replay::BatchSource* const source_;
  std::vector<replicator::InputSpec> specs_;
  replay::Batch batch_;
  double wait_seconds_ = 0.0;
  bool is_drained_ = false;
};

}  // namespace replicant::learner
