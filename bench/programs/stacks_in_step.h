#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "agents/images.h"
#include "agents/learning_spec.h"
#include "base/tensor/tensor_view.h"
#include "engine/kernels/backend.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/variable_store.h"
#include "learner/workloads/agent/resident_frames.h"

namespace replicant::learner {

// The part of a step that makes stacks of a table of frames.
class StacksInStep {
 public:
  // A batch of `rows` transitions; a table with room for `num_frames`.
  StacksInStep(const agents::LearningSpec& spec, int64_t rows,
               int64_t num_frames, int num_threads)
      : backend_(kernels::MakeBackend("cpu", {.num_threads = num_threads})),
        stream_(backend_->CreateStream()),
        variables_(*backend_, /*seed=*/1),
        frames_(*backend_,
                {.frame_bytes = spec.task.frame_bytes(),
                 .max_bytes = num_frames * spec.task.frame_bytes(),
                 .frames_per_batch = 2 * spec.task.frame_stack * rows}) {
    graph::Graph graph;
    const graph::Output table =
        graph.Input("table", frames_.type().dtype, frames_.type().shape);
    std::vector<graph::Output> stacks;
    for (const char* const name : kNames) {
      stacks.push_back(agents::GatherObservations(
          spec.task, table,
          graph.Input(name, DType::kI32, {rows, spec.task.frame_stack})));
    }
    plan_ = std::make_unique<runtime::Executor>(
        graph, runtime::PlanSpec{.outputs = stacks}, variables_,
        runtime::CompileOptions{.residents = {{"table", &frames_}}});
  }

  ResidentFrames& frames() { return frames_; }
  // Sends the frames of a batch that are not in the table, and makes its stacks
  // if `gathers`.
  void Take(const std::array<TensorView, 2>& slots, bool gathers) {
    if (!gathers) {
      frames_.Update(*stream_);
      return;
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      std::ranges::copy(slots[i].Span<int32_t>(),
                        plan_->input(kNames[i]).Span<int32_t>().begin());
    }
    plan_->Run();
  }

 private:
  static constexpr const char* kNames[] = {"observation", "next_observation"};

  const std::unique_ptr<kernels::Backend> backend_;
  const std::unique_ptr<kernels::Stream> stream_;
  runtime::VariableStore variables_;
  ResidentFrames frames_;
  std::unique_ptr<runtime::Executor> plan_;
};

}  // namespace replicant::learner
