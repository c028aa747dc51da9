#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>

#include "agents/agent.h"
#include "learner/checkpointed_input.h"
#include "learner/workloads/agent/transition_pipeline.h"
#include "replay/client/batch_source.h"

namespace replicant::learner {

// The input of a workload with an agent: one source of batches, and one
// pipeline for each group of replicas in this process.
//
// Thread-safety: one thread at a time.
class TransitionInput : public CheckpointedInput {
 public:
  // `source` outlives the input. Null in a process that draws nothing.
  explicit TransitionInput(replay::BatchSource* source) : source_(source) {}

  // Makes the pipeline of `group`, with the arguments of TransitionPipeline.
  // The caller owns the pipeline, which lives as long as this input.
  std::unique_ptr<TransitionPipeline> MakePipeline(
      int group, const agents::LearningSpec& spec, int64_t batch_size,
      int num_threads, ResidentFrames* frames);

  // Whether this process draws batches.
  bool is_drawing() const { return !pipelines_.empty(); }
  // The pipeline of a group; holds the last returned batch.
  const TransitionPipeline& pipeline(int group) const {
    return *pipelines_.at(group);
  }
  // Time that all pipelines have waited for batches, seconds.
  double WaitSeconds() const;

  void SetLimit(int64_t num_batches) override {
    source_->SetLimit(num_batches);
  }
  void SetPaused(bool is_paused) override;
  bool IsDrained() const override;
  void StartSaving(uint64_t id, const std::filesystem::path& folder) override {
    source_->StartCheckpoint(id, folder);
  }
  void Restore(const std::filesystem::path& folder) override {
    source_->RestoreParts(folder);
  }
  replay::CheckpointState PollSaved() override {
    return source_->PollCheckpoint();
  }

 private:
  replay::BatchSource* const source_;
  std::map<int, TransitionPipeline*> pipelines_;  // by group
};

}  // namespace replicant::learner
