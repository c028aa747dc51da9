#include "learner/workloads/agent/batch_pipeline.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <vector>

#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/parallel.h"
#include "core/tensor/interleave.h"

namespace replicant::learner {
namespace {

using replicator::NextResult;

// Indices of TransitionPipeline::specs(), which are sorted by name.
enum : size_t { kObservation, kAction, kReward, kDiscount, kNext, kWeight };

std::vector<replicator::InputSpec> MakeSpecs(const agents::TaskSpec& task,
                                             int64_t batch_size) {
  const DType observation_dtype = task.has_pixels ? DType::kU8 : DType::kF32;
  std::vector<int64_t> dims = {batch_size};
  dims.insert(dims.end(), task.observation.dims().begin(),
              task.observation.dims().end());
  const Shape observations{std::span<const int64_t>(dims)};
  const Shape per_row({batch_size});
  return {{"observation", observation_dtype, observations},
          {"action", DType::kF32, Shape({batch_size, task.action_size()})},
          {"reward", DType::kF32, per_row},
          {"discount", DType::kF32, per_row},
          {"next_observation", observation_dtype, observations},
          {"importance_weight", DType::kF32, per_row}};
}

void Copy(std::span<const std::byte> from, const MutableTensorView& to) {
  REPLICANT_CHECK_EQ(from.size(), to.size_bytes());
  std::memcpy(to.data(), from.data(), from.size());
}

std::span<std::byte> RowOf(const MutableTensorView& view, int64_t row) {
  const size_t bytes = view.size_bytes() / static_cast<size_t>(view.shape()[0]);
  return {view.data() + static_cast<size_t>(row) * bytes, bytes};
}

}  // namespace

TransitionPipeline::TransitionPipeline(const agents::TaskSpec& task,
                                       int64_t batch_size, int num_threads,
                                       replay::BatchSource* source)
    : task_(task),
      batch_size_(batch_size),
      threads_(static_cast<size_t>(num_threads)),
      source_(source),
      specs_(MakeSpecs(task, batch_size)) {
  for (ThreadMemory& thread : threads_) {
    thread.stacks = HostBuffer(
        static_cast<size_t>(2 * task.frame_stack * task.frame_bytes()));
  }
}

NextResult TransitionPipeline::Next(Clock::TimePoint deadline,
                                    std::span<const MutableTensorView> batch) {
  const Clock::TimePoint begin = Clock::Real().Now();
  const replay::ReadResult result = source_->Next(deadline, &batch_);
  wait_seconds_ += ToSeconds(Clock::Real().Now() - begin);
  is_drained_ = result == replay::ReadResult::kPaused;
  // a paused source gives more batches later
  if (result == replay::ReadResult::kTimeout ||
      result == replay::ReadResult::kPaused) {
    return NextResult::kTimeout;
  }
  if (result == replay::ReadResult::kClosed) return NextResult::kEnd;
  const replay::BatchForm form = {.stack = task_.frame_stack};
  if (batch_.size != batch_size_ || batch_.form != form) {
    throw CommError(fmt::format(
        "the replay gives batches of {} {} with stacks of {}; the learner "
        "wants {} {} with stacks of {}",
        batch_.size, ToString(batch_.form), batch_.form.stack, batch_size_,
        ToString(form), form.stack));
  }
  if (task_.has_pixels) {
    WriteFrames(batch[kObservation], batch[kNext]);
  } else {
    Copy(batch_.observations.bytes(), batch[kObservation]);
    Copy(batch_.next_observations.bytes(), batch[kNext]);
  }
  Copy(batch_.actions.bytes(), batch[kAction]);
  Copy(std::as_bytes(std::span(batch_.rewards)), batch[kReward]);
  Copy(std::as_bytes(std::span(batch_.discounts)), batch[kDiscount]);
  Copy(std::as_bytes(std::span(batch_.weights)), batch[kWeight]);
  return NextResult::kOk;
}

void TransitionPipeline::WriteFrames(
    const MutableTensorView& observations,
    const MutableTensorView& next_observations) {
  // exceptions must not leave a thread of the OpenMP team
  std::vector<std::exception_ptr> failures(threads_.size());
  ParallelForEach(static_cast<int>(threads_.size()), batch_.size,
                  [&](int thread, int64_t row) {
                    const auto t = static_cast<size_t>(thread);
                    try {
                      ThreadMemory& memory = threads_[t];
                      const auto stacks = batch_.FramesOf(
                          row, memory.decoder, memory.stacks.bytes());
                      InterleaveFrames(stacks.frames, task_.frame_stack,
                                       RowOf(observations, row));
                      InterleaveFrames(stacks.next_frames, task_.frame_stack,
                                       RowOf(next_observations, row));
                    } catch (...) {
                      failures[t] = std::current_exception();
                    }
                  });
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace replicant::learner
