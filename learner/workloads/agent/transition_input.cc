#include "learner/workloads/agent/transition_input.h"

#include <algorithm>

namespace replicant::learner {

std::unique_ptr<TransitionPipeline> TransitionInput::MakePipeline(
    int group, const agents::LearningSpec& spec, int64_t batch_size,
    int num_threads, ResidentFrames* frames) {
  auto pipeline = std::make_unique<TransitionPipeline>(
      spec, batch_size, num_threads, source_, frames);
  pipelines_[group] = pipeline.get();
  return pipeline;
}

double TransitionInput::WaitSeconds() const {
  double sum = 0.0;
  for (const auto& [group, pipeline] : pipelines_) {
    sum += pipeline->wait_seconds();
  }
  return sum;
}

void TransitionInput::SetPaused(bool is_paused) {
  for (const auto& [group, pipeline] : pipelines_) {
    pipeline->SetPaused(is_paused);
  }
}

bool TransitionInput::IsDrained() const {
  // a pipeline that found the source empty begins no step, so none of its steps
  // is under way either
  return std::ranges::all_of(
      pipelines_, [](const auto& entry) { return entry.second->is_drained(); });
}

}  // namespace replicant::learner
