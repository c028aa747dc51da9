#include "learner/workloads/d4pg/batch_pipeline.h"

#include <fmt/format.h>
#include <hwy/highway.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/base/check.h"
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

// Lays the frames of a stack side by side, pixel by pixel. A vector holds five
// pixels of a frame; where its bytes go in the next vectors of the row is the
// same for every five, and a shuffle of each frame puts them there.
class Interleaver {
 public:
  explicit Interleaver(size_t num_frames)
      : num_frames_(num_frames),
        num_vectors_((kGroup * kPixelBytes * num_frames + kBytes - 1) /
                     kBytes) {
    for (size_t v = 0; v < num_vectors_; ++v) {
      for (size_t f = 0; f < num_frames_; ++f) {
        for (size_t i = 0; i < kBytes; ++i) {
          const size_t out = v * kBytes + i;
          const size_t pixel = out / (kPixelBytes * num_frames_);
          const bool is_here =
              out / kPixelBytes % num_frames_ == f && pixel < kGroup;
          // a shuffle gives 0 where the highest bit is set
          shuffles_.push_back(static_cast<uint8_t>(
              is_here ? pixel * kPixelBytes + out % kPixelBytes : 0x80));
        }
      }
    }
  }

  // frames [num_frames, num_pixels, 3] -> out [num_pixels, num_frames, 3]
  void Run(const std::byte* frames, size_t num_pixels, std::byte* out) const {
    const size_t frame_bytes = num_pixels * kPixelBytes;
    const size_t position_bytes = num_frames_ * kPixelBytes;
    size_t p = 0;
    // the last vectors would reach beyond both
    for (; p + kGroup + kBytes <= num_pixels; p += kGroup) {
      for (size_t v = 0; v < num_vectors_; ++v) {
        auto sum = hn::Zero(kTag);
        for (size_t f = 0; f < num_frames_; ++f) {
          const auto* from = reinterpret_cast<const uint8_t*>(
              frames + f * frame_bytes + p * kPixelBytes);
          const auto shuffle = hn::LoadU(
              kTag, shuffles_.data() + (v * num_frames_ + f) * kBytes);
          sum = hn::Or(sum,
                       hn::TableLookupBytesOr0(hn::LoadU(kTag, from), shuffle));
        }
        hn::StoreU(
            sum, kTag,
            reinterpret_cast<uint8_t*>(out + p * position_bytes + v * kBytes));
      }
    }
    for (; p < num_pixels; ++p) {
      for (size_t f = 0; f < num_frames_; ++f) {
        std::memcpy(out + p * position_bytes + f * kPixelBytes,
                    frames + f * frame_bytes + p * kPixelBytes, kPixelBytes);
      }
    }
  }

 private:
  static constexpr hn::FixedTag<uint8_t, 16> kTag{};
  static constexpr size_t kBytes = 16;
  static constexpr size_t kGroup = 5;  // pixels

  const size_t num_frames_;
  const size_t num_vectors_;       // of five positions
  std::vector<uint8_t> shuffles_;  // [num_vectors, num_frames, 16]
};

void Copy(std::span<const std::byte> from, const MutableTensorView& to) {
  REPLICANT_CHECK_EQ(from.size(), to.size_bytes());
  std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

TransitionPipeline::TransitionPipeline(const agents::TaskSpec& task,
                                       int64_t batch_size, int num_threads,
                                       TransitionSource* source)
    : task_(task),
      batch_size_(batch_size),
      num_threads_(num_threads),
      source_(source),
      specs_(MakeSpecs(task, batch_size)) {}

NextResult TransitionPipeline::Next(Clock::TimePoint deadline,
                                    std::span<const MutableTensorView> batch) {
  const Clock::TimePoint begin = Clock::Real().Now();
  const replay::ReadResult result = source_->Next(deadline, &batch_);
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
                   task_.observation[0] * task_.observation[1], num_threads_,
                   out.bytes());
}

void InterleaveFrames(std::span<const std::byte> frames, int64_t stack,
                      int64_t pixels, int num_threads,
                      std::span<std::byte> out) {
  const auto num_frames = static_cast<size_t>(stack);
  const auto num_pixels = static_cast<size_t>(pixels);
  const size_t row_bytes = num_frames * num_pixels * kPixelBytes;
  if (frames.size() != out.size() || frames.size() % row_bytes != 0) {
    throw InvalidArgument(fmt::format(
        "InterleaveFrames: {} bytes into {}; want as many, and whole rows of "
        "{}",
        frames.size(), out.size(), row_bytes));
  }
  const Interleaver interleaver(num_frames);
  kernels::cpu::ParallelFor(
      num_threads, static_cast<int64_t>(frames.size() / row_bytes),
      [&](int /*thread*/, int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const size_t offset = static_cast<size_t>(row) * row_bytes;
          interleaver.Run(frames.data() + offset, num_pixels,
                          out.data() + offset);
        }
      });
}

}  // namespace replicant::learner
