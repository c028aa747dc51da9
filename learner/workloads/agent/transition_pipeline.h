#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "agents/agent.h"
#include "env/interleave.h"
#include "learner/workloads/agent/resident_frames.h"
#include "replay/client/batch_source.h"
#include "replicator/input.h"

namespace replicant::learner {

// Draws batches of transitions and lays them out as
// agents::TransitionTensors(): the frames of a stack become the channels of one
// image, oldest first; several images of an observation lie one after the
// other. Each byte of an image is written once, from where the frame lies: in
// the batch, or in memory that the reader keeps (replay::KeptFrames). From
// windows it also makes the n-step transitions.
//
// Thread-safety: one thread at a time.
class TransitionPipeline : public replicator::InputPipeline {
 public:
  // `source` outlives the pipeline; null in a process that draws nothing.
  // `num_threads` threads decode compressed frames and interleave stacks. With
  // `frames`, which outlive the pipeline, observations are slots of that table
  // (ObservationSlots() in learner/workloads/agent/agent_step.h).
  // Precondition: LearningSpec::window_observations is in its range (checked;
  // aborts).
  TransitionPipeline(const agents::LearningSpec& spec, int64_t batch_size,
                     int num_threads, replay::BatchSource* source,
                     ResidentFrames* frames = nullptr);

  const std::vector<replicator::InputSpec>& specs() const override {
    return specs_;
  }
  // Throws CommError if the source's batches do not fit the specification.
  replicator::NextResult Next(
      Clock::TimePoint deadline,
      std::span<const MutableTensorView> batch) override {
    return Draw(deadline, batch, &used_);
  }
  replicator::NextResult NextAhead(
      Clock::TimePoint deadline,
      std::span<const MutableTensorView> batch) override;
  void UseAhead() override { std::swap(used_, ahead_); }

  // The batch that Next() or UseAhead() returned last.
  const replay::Batch& batch() const { return used_.batch; }
  // R and D of its transitions (agents::TransitionBatch), [B] each.
  std::span<const float> returns() const { return ReturnsOf(used_); }
  std::span<const float> discounts() const { return DiscountsOf(used_); }
  double wait_seconds() const { return wait_seconds_; }
  // Whether the last Next() found the source paused, with nothing left.
  bool is_drained() const { return is_drained_; }
  void SetPaused(bool is_paused) {
    source_->SetPaused(is_paused);
    is_drained_ = false;
  }

 private:
  struct Drawn {
    replay::Batch batch;
    // for windows
    std::vector<float> returns, discounts;
    // [B, T]: steps from o_t to a window's observations; 0: none
    std::vector<int32_t> ahead;

    // Those of a row: [T], empty without windows.
    std::span<const int32_t> AheadOf(int64_t row, int64_t batch_size) const {
      const size_t size = ahead.size() / static_cast<size_t>(batch_size);
      return std::span(ahead).subspan(static_cast<size_t>(row) * size, size);
    }
  };
  using Views = std::span<const MutableTensorView>;

  replicator::NextResult Draw(Clock::TimePoint deadline, Views batch,
                              Drawn* drawn);
  // Write a drawn batch as the inputs of the network: states, images of the
  // stacked frames, and the steps of windows.
  void WriteStates(const Drawn& drawn, Views batch) const;
  void WriteFrames(const Drawn& drawn, Views batch);
  // `ahead`: of this row, [T]
  void WriteRowOfFrames(const replay::ItemFrames& frames, int64_t row,
                        std::span<const int32_t> ahead, Views batch) const;
  // The same as slots of the table.
  void WriteRowOfSlots(const replay::ItemFrames& frames, int64_t row,
                       std::span<const int32_t> ahead, Views batch) const;
  // Writes the images of an observation from a stack of its frames, each where
  // it lies.
  void WriteImages(std::span<const std::byte* const> stack,
                   std::span<std::byte> out) const;
  void WriteSteps(Drawn* drawn, Views batch) const;
  // Chooses the observations of the windows, and says which steps lead to them.
  void ChooseObservations(Drawn* drawn, Views batch) const;
  // Writes agents::TransitionBatch::prior_weight.
  void WritePriorWeights(const replay::Batch& from, Views batch) const;
  // The tensor of this name.
  const MutableTensorView& ViewOf(std::string_view name, Views batch) const;
  // Steps from o_t to the observation where a return of `num_steps` steps
  // bootstraps.
  int64_t NumReturnSteps(int64_t num_steps) const;
  std::span<const float> ReturnsOf(const Drawn& drawn) const {
    return spec_.window > 0 ? drawn.returns : drawn.batch.rewards;
  }
  std::span<const float> DiscountsOf(const Drawn& drawn) const {
    return spec_.window > 0 ? drawn.discounts : drawn.batch.discounts;
  }
  replay::BatchForm form() const {
    return {.stack = spec_.task.frame_stack, .window = spec_.window};
  }

  const agents::LearningSpec spec_;
  const int64_t batch_size_;
  // the frame of each image of an observation
  struct FrameForm {
    size_t size = 0;  // bytes
    size_t pixel_bytes = 0;
  };
  std::vector<FrameForm> frames_;
  std::vector<replay::FrameRoom> threads_;
  env::Stores stores_ = env::Stores::kCached;  // of the images
  replay::BatchSource* const source_;
  ResidentFrames* const resident_;  // null: pixels travel with the batch
  std::vector<replicator::InputSpec> specs_;
  Drawn used_, ahead_;
  double wait_seconds_ = 0.0;
  bool is_drained_ = false;
};

}  // namespace replicant::learner
