#include "learner/workloads/agent/batch_pipeline.h"

#include <fmt/format.h>
#include <hwy/highway.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <type_traits>
#include <vector>

#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/kernels/cpu/parallel.h"

namespace replicant::learner {
namespace {

using replicator::NextResult;
// the baseline has what this needs: no choice at run time
namespace hn = hwy::HWY_NAMESPACE;

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
constexpr hn::FixedTag<uint8_t, 16> kTag{};
constexpr size_t kBytes = 16;
constexpr size_t kGroup = 5;  // pixels

void Copy(std::span<const std::byte> from, const MutableTensorView& to) {
  REPLICANT_CHECK_EQ(from.size(), to.size_bytes());
  std::memcpy(to.data(), from.data(), from.size());
}

std::span<std::byte> RowOf(const MutableTensorView& view, int64_t row) {
  const size_t bytes = view.size_bytes() / static_cast<size_t>(view.shape()[0]);
  return {view.data() + static_cast<size_t>(row) * bytes, bytes};
}

// Vectors of five positions.
constexpr size_t NumVectors(size_t num_frames) {
  return (kGroup * kPixelBytes * num_frames + kBytes - 1) / kBytes;
}

// Interleaves frames five pixels at a time, as far as vectors do not reach
// beyond them; returns how many. Of a known number of frames (kFrames, else 0)
// the shuffles stay in registers, and nothing is left of the inner loops.
template <size_t kFrames>
size_t InterleaveGroups(const std::byte* frames, size_t num_frames,
                        size_t num_pixels, const uint8_t* shuffles,
                        std::byte* out) {
  using V = hn::Vec<decltype(kTag)>;
  const size_t n = kFrames > 0 ? kFrames : num_frames;
  const size_t num_vectors = NumVectors(n);
  const size_t frame_bytes = num_pixels * kPixelBytes;
  const auto* from = reinterpret_cast<const uint8_t*>(frames);
  auto* to = reinterpret_cast<uint8_t*>(out);
  constexpr size_t kShuffles = NumVectors(kFrames) * kFrames;
  [[maybe_unused]] V kept[std::max<size_t>(1, kShuffles)];
  for (size_t i = 0; i < kShuffles; ++i) {
    kept[i] = hn::LoadU(kTag, shuffles + i * kBytes);
  }
  const auto shuffle = [&](size_t i) -> V {
    if constexpr (kFrames > 0) return kept[i];
    return hn::LoadU(kTag, shuffles + i * kBytes);
  };
  size_t p = 0;
  for (; p + kGroup + kBytes <= num_pixels; p += kGroup) {
    HWY_UNROLL(4) for (size_t v = 0; v < num_vectors; ++v) {
      V sum = hn::Zero(kTag);
      HWY_UNROLL(4) for (size_t f = 0; f < n; ++f) {
        const V pixels = hn::LoadU(kTag, from + f * frame_bytes);
        sum = hn::Or(sum, hn::TableLookupBytesOr0(pixels, shuffle(v * n + f)));
      }
      hn::StoreU(sum, kTag, to + v * kBytes);
    }
    from += kGroup * kPixelBytes;
    to += kGroup * kPixelBytes * n;
  }
  return p;
}

}  // namespace

// A vector holds five pixels of a frame; where its bytes go in the next vectors
// of the row is the same for every five, and a shuffle of each frame puts them
// there.
FrameInterleaver::FrameInterleaver(int64_t stack)
    : num_frames_(static_cast<size_t>(stack)),
      shuffles_(NumVectors(num_frames_) * num_frames_ * kBytes) {
  auto shuffle = shuffles_.begin();
  for (size_t v = 0; v < NumVectors(num_frames_); ++v) {
    for (size_t f = 0; f < num_frames_; ++f) {
      for (size_t i = 0; i < kBytes; ++i) {
        const size_t out = v * kBytes + i;
        const size_t pixel = out / (kPixelBytes * num_frames_);
        const bool is_here =
            out / kPixelBytes % num_frames_ == f && pixel < kGroup;
        // a shuffle gives 0 where the highest bit is set
        *shuffle++ = static_cast<uint8_t>(
            is_here ? pixel * kPixelBytes + out % kPixelBytes : 0x80);
      }
    }
  }
}

void FrameInterleaver::Run(std::span<const std::byte> frames,
                           std::span<std::byte> out) const {
  const size_t position_bytes = num_frames_ * kPixelBytes;
  if (frames.size() != out.size() || frames.size() % position_bytes != 0) {
    throw InvalidArgument(fmt::format(
        "FrameInterleaver: {} bytes into {}; want as many, and whole positions "
        "of {}",
        frames.size(), out.size(), position_bytes));
  }
  const size_t num_pixels = frames.size() / position_bytes;
  const size_t frame_bytes = num_pixels * kPixelBytes;
  const auto run = [&](auto stack) {
    return InterleaveGroups<stack()>(frames.data(), num_frames_, num_pixels,
                                     shuffles_.data(), out.data());
  };
  size_t p = 0;
  switch (num_frames_) {
    case 2:
      p = run(std::integral_constant<size_t, 2>());
      break;
    case 3:
      p = run(std::integral_constant<size_t, 3>());
      break;
    case 4:
      p = run(std::integral_constant<size_t, 4>());
      break;
    default:
      p = run(std::integral_constant<size_t, 0>());
  }
  for (; p < num_pixels; ++p) {
    for (size_t f = 0; f < num_frames_; ++f) {
      std::memcpy(out.data() + p * position_bytes + f * kPixelBytes,
                  frames.data() + f * frame_bytes + p * kPixelBytes,
                  kPixelBytes);
    }
  }
}

TransitionPipeline::TransitionPipeline(const agents::TaskSpec& task,
                                       int64_t batch_size, int num_threads,
                                       TransitionSource* source)
    : task_(task),
      batch_size_(batch_size),
      interleaver_(task.frame_stack),
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
  // no exception leaves a thread of the team
  std::vector<std::exception_ptr> failures(threads_.size());
  kernels::cpu::ParallelForEach(
      static_cast<int>(threads_.size()), batch_.size,
      [&](int thread, int64_t row) {
        const auto t = static_cast<size_t>(thread);
        try {
          ThreadMemory& memory = threads_[t];
          const auto stacks =
              batch_.StacksOf(row, memory.decoder, memory.stacks.bytes());
          interleaver_.Run(stacks.frames, RowOf(observations, row));
          interleaver_.Run(stacks.next_frames, RowOf(next_observations, row));
        } catch (...) {
          failures[t] = std::current_exception();
        }
      });
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace replicant::learner
