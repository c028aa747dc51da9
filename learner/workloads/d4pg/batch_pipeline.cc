#include "learner/workloads/d4pg/batch_pipeline.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>

#include "core/base/check.h"
#include "core/base/error.h"

namespace replicant::learner {
namespace {

using replicator::NextResult;

// Of TransitionPipeline::specs(), in the order of the names.
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

constexpr size_t kPixelBytes = 3;  // red, green, blue

// Pixels go as four bytes, a word, of which the next one written covers the
// last; only the last position's would end outside.
void InterleaveRow(const std::byte* frames, size_t num_frames,
                   size_t num_pixels, std::byte* out) {
  const auto copy_position = [&](size_t p, size_t bytes) {
    for (size_t f = 0; f < num_frames; ++f) {
      std::memcpy(out + (p * num_frames + f) * kPixelBytes,
                  frames + (f * num_pixels + p) * kPixelBytes, bytes);
    }
  };
  for (size_t p = 0; p + 1 < num_pixels; ++p) copy_position(p, 4);
  copy_position(num_pixels - 1, kPixelBytes);
}

void Copy(std::span<const std::byte> from, const MutableTensorView& to) {
  REPLICANT_CHECK_EQ(from.size(), to.size_bytes());
  std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

TransitionPipeline::TransitionPipeline(const agents::TaskSpec& task,
                                       int64_t batch_size,
                                       TransitionSource* source)
    : task_(task),
      batch_size_(batch_size),
      source_(*source),
      specs_(MakeSpecs(task, batch_size)) {}

NextResult TransitionPipeline::Next(Clock::TimePoint deadline,
                                    std::span<const MutableTensorView> batch) {
  const Clock::TimePoint begin = Clock::Real().Now();
  const replay::ReadResult result = source_.Next(deadline, &batch_);
  wait_seconds_ +=
      std::chrono::duration<double>(Clock::Real().Now() - begin).count();
  is_drained_ = result == replay::ReadResult::kPaused;
  // paused: the batches under way were given, and more come later
  if (result == replay::ReadResult::kTimeout ||
      result == replay::ReadResult::kPaused) {
    return NextResult::kTimeout;
  }
  if (result == replay::ReadResult::kClosed) return NextResult::kEnd;
  if (batch_.size != batch_size_ || batch_.stack != task_.frame_stack) {
    throw CommError(fmt::format(
        "the replay gives batches of {} with stacks of {}; the learner wants "
        "{} and {}",
        batch_.size, batch_.stack, batch_size_, task_.frame_stack));
  }
  CopyObservations(batch_.observations, batch_.frames, batch[kObservation]);
  CopyObservations(batch_.next_observations, batch_.next_frames, batch[kNext]);
  Copy(batch_.actions.bytes(), batch[kAction]);
  Copy(std::as_bytes(std::span(batch_.rewards)), batch[kReward]);
  Copy(std::as_bytes(std::span(batch_.discounts)), batch[kDiscount]);
  Copy(std::as_bytes(std::span(batch_.weights)), batch[kWeight]);
  return NextResult::kOk;
}

void TransitionPipeline::CopyObservations(const HostBuffer& rows,
                                          const HostBuffer& frames,
                                          const MutableTensorView& out) const {
  if (!task_.has_pixels) {
    Copy(rows.bytes(), out);
    return;
  }
  InterleaveFrames(frames.bytes(), task_.frame_stack,
                   task_.observation[0] * task_.observation[1], out.bytes());
}

void InterleaveFrames(std::span<const std::byte> frames, int64_t stack,
                      int64_t pixels, std::span<std::byte> out) {
  const auto num_frames = static_cast<size_t>(stack);
  const auto num_pixels = static_cast<size_t>(pixels);
  const size_t row_bytes = num_frames * num_pixels * kPixelBytes;
  if (frames.size() != out.size() || frames.size() % row_bytes != 0) {
    throw InvalidArgument(fmt::format(
        "InterleaveFrames: {} bytes into {}; want as many, and whole rows of "
        "{}",
        frames.size(), out.size(), row_bytes));
  }
  for (size_t row = 0; row < frames.size(); row += row_bytes) {
    InterleaveRow(frames.data() + row, num_frames, num_pixels,
                  out.data() + row);
  }
}

}  // namespace replicant::learner
