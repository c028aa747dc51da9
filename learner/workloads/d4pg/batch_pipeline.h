#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agents/task_spec.h"
#include "core/replicator/input.h"
#include "learner/workloads/d4pg/transition_source.h"

namespace replicant::learner {

// Batches of transitions as the inputs of agents::d4pg::AddBatchInputs(): the
// frames of a stack become the channels of one image, oldest first.
//
// Thread-safety: one thread at a time.
class TransitionPipeline : public replicator::InputPipeline {
 public:
  // `source` outlives the pipeline; null where nothing is drawn. Frames are put
  // in order on `num_threads`.
  TransitionPipeline(const agents::TaskSpec& task, int64_t batch_size,
                     int num_threads, TransitionSource* source);

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
  void CopyObservations(const HostBuffer& rows, const HostBuffer& frames,
                        const MutableTensorView& out) const;

  const agents::TaskSpec task_;
  const int64_t batch_size_;
  const int num_threads_;
  TransitionSource* const source_;
  std::vector<replicator::InputSpec> specs_;
  replay::Batch batch_;
  double wait_seconds_ = 0.0;
  bool is_drained_ = false;
};

// frames [B, stack, pixels, 3] -> out [B, pixels, stack * 3]. Throws
// InvalidArgument unless both have as many bytes, and whole rows of them.
void InterleaveFrames(std::span<const std::byte> frames, int64_t stack,
                      int64_t pixels, int num_threads,
                      std::span<std::byte> out);

}  // namespace replicant::learner
