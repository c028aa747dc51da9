#include "env/wrappers.h"

#include <fmt/format.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/error.h"

namespace replicant::env {
namespace {

void CheckPositive(const char* what, int64_t value) {
  if (value < 1) {
    throw InvalidArgument(fmt::format("{} must be >= 1, got {}", what, value));
  }
}

constexpr size_t kChannels = 3;
constexpr size_t kMaxDepth = 64;

// Puts the pixels of `depth` frames beside one another. kDepth is the same
// number, or 0 if it is not known when this is compiled.
template <size_t kDepth>
void Interleave(const uint8_t* const* from, size_t depth, size_t pixels,
                uint8_t* out) {
  if constexpr (kDepth != 0) depth = kDepth;
  // four bytes at a time are quicker than three; what is too much is
  // overwritten by the next, and the last pixel has no room for it
  for (size_t i = 0; i + 1 < pixels; ++i) {
    for (size_t k = 0; k < depth; ++k) {
      std::memcpy(out, from[k] + i * kChannels, kChannels + 1);
      out += kChannels;
    }
  }
  for (size_t k = 0; k < depth; ++k) {
    std::memcpy(out, from[k] + (pixels - 1) * kChannels, kChannels);
    out += kChannels;
  }
}

// How vectors of 16 bytes put 16 pixels of three frames beside one another: 9
// of them, each with bytes of one or two pixels of every frame.
struct ThreeFrames {
  static constexpr size_t kPixels = 16;
  static constexpr size_t kBytes = 16;
  static constexpr size_t kVectors = 3 * kChannels * kPixels / kBytes;

  // Where vector j begins in a frame, and which of the bytes from there on it
  // takes of frame k (0x80: none).
  std::array<size_t, kVectors> begin{};
  alignas(kBytes)
      std::array<std::array<std::array<uint8_t, kBytes>, 3>, kVectors> take{};

  constexpr ThreeFrames() {
    for (size_t j = 0; j < kVectors; ++j) {
      begin[j] = j * kBytes / (3 * kChannels) * kChannels;
      for (size_t b = 0; b < kBytes; ++b) {
        const size_t at = j * kBytes + b;
        const size_t pixel = at / (3 * kChannels);
        for (auto& frame : take[j]) frame[b] = 0x80;
        take[j][at / kChannels % 3][b] =
            static_cast<uint8_t>(pixel * kChannels + at % kChannels - begin[j]);
      }
    }
  }
};

// Interleave<3>() in vectors.
void InterleaveThree(const uint8_t* const* from, size_t pixels, uint8_t* out) {
  // the baseline has what this needs: no choice at run time
  namespace hn = hwy::HWY_NAMESPACE;
  static constexpr ThreeFrames kPlan;
  constexpr size_t kBytes = ThreeFrames::kBytes;
  const hn::FixedTag<uint8_t, kBytes> tag;
  constexpr size_t kFrameBlock = ThreeFrames::kPixels * kChannels;
  constexpr size_t kOutBlock = 3 * kFrameBlock;
  // blocks that are taken up together: the shuffles of one vector stay in
  // registers, and what is read and written in the fastest cache
  constexpr size_t kRun = 16;
  constexpr size_t kRunPixels = kRun * ThreeFrames::kPixels;
  // the last vector of a block reads beyond it
  constexpr size_t kReach = kRunPixels + kBytes / kChannels + 1;
  size_t i = 0;
  for (; i + kReach <= pixels; i += kRunPixels) {
    for (size_t j = 0; j < ThreeFrames::kVectors; ++j) {
      const auto take0 = hn::Load(tag, kPlan.take[j][0].data());
      const auto take1 = hn::Load(tag, kPlan.take[j][1].data());
      const auto take2 = hn::Load(tag, kPlan.take[j][2].data());
      const size_t begin = i * kChannels + kPlan.begin[j];
      for (size_t block = 0; block < kRun; ++block) {
        const size_t at = begin + block * kFrameBlock;
        const auto mixed = hn::Or(
            hn::TableLookupBytesOr0(hn::LoadU(tag, from[0] + at), take0),
            hn::Or(
                hn::TableLookupBytesOr0(hn::LoadU(tag, from[1] + at), take1),
                hn::TableLookupBytesOr0(hn::LoadU(tag, from[2] + at), take2)));
        hn::StoreU(mixed, tag, out + block * kOutBlock + j * kBytes);
      }
    }
    out += kRun * kOutBlock;
  }
  const std::array<const uint8_t*, 3> rest = {from[0] + i * kChannels,
                                              from[1] + i * kChannels,
                                              from[2] + i * kChannels};
  Interleave<3>(rest.data(), 3, pixels - i, out);
}

}  // namespace

ActionRepeat::ActionRepeat(std::unique_ptr<Environment> environment, int count,
                           RewardReduction reduction)
    : EnvironmentWrapper(std::move(environment)),
      count_(count),
      reduction_(reduction) {
  CheckPositive("ActionRepeat: count", count);
}

TimeStep ActionRepeat::Step(std::span<const double> action,
                            const ObservationBuffer& out) {
  // before anything is simulated: only the last step sees the buffer
  CheckBuffer(out, observation_spec(), "ActionRepeat");
  double reward = 0.0;
  int made = 0;
  bool is_observed = false;
  TimeStep step;
  do {
    // the last one writes the observation; one that ends the episode before it
    // could not know, and is observed below
    is_observed = made + 1 == count_;
    step = inner().Step(action, is_observed ? out : ObservationBuffer{});
    ++made;
    reward += step.reward;
    // after a last step this one is a reset, and the only one
  } while (made < count_ && step.step_type == StepType::kMid);
  if (!is_observed) inner().Observe(out);
  step.reward = reduction_ == RewardReduction::kMean ? reward / made : reward;
  return step;
}

StepLimit::StepLimit(std::unique_ptr<Environment> environment,
                     int64_t max_steps)
    : EnvironmentWrapper(std::move(environment)), max_steps_(max_steps) {
  CheckPositive("StepLimit: max_steps", max_steps);
}

TimeStep StepLimit::Reset(const ObservationBuffer& out) {
  const TimeStep step = inner().Reset(out);
  step_ = 0;
  is_episode_over_ = false;
  return step;
}

TimeStep StepLimit::Step(std::span<const double> action,
                         const ObservationBuffer& out) {
  if (is_episode_over_) return Reset(out);
  TimeStep step = inner().Step(action, out);
  ++step_;
  // the discount stays: an end that the task declared here is one
  if (step_ >= max_steps_) step.step_type = StepType::kLast;
  is_episode_over_ = step.IsLast();
  return step;
}

FrameStack::FrameStack(int64_t pixels, int64_t depth)
    : pixels_(static_cast<size_t>(pixels)), depth_(static_cast<size_t>(depth)) {
  CheckPositive("FrameStack: pixels", pixels);
  if (depth < 1 || depth > int64_t{kMaxDepth}) {
    throw InvalidArgument(fmt::format(
        "FrameStack: depth must be in [1, {}], got {}", kMaxDepth, depth));
  }
  frames_.assign(depth_ + 1, std::vector<uint8_t>(pixels_ * kChannels));
}

void FrameStack::Push() {
  next_ = (next_ + 1) % frames_.size();
  count_ = std::min(count_ + 1, depth_);
}

void FrameStack::Fill() {
  count_ = 0;
  Push();
}

void FrameStack::CopyTo(std::span<uint8_t> out) const {
  REPLICANT_CHECK(count_ > 0 && out.size() == pixels_ * depth_ * kChannels,
                  "{} frames, {} bytes", count_, out.size());
  // oldest first; where there are too few, the first one stands for those
  // before it
  std::array<const uint8_t*, kMaxDepth> from;
  for (size_t i = 0; i < depth_; ++i) {
    const size_t back = std::min(depth_ - i, count_);
    from[i] = frames_[(next_ + frames_.size() - back) % frames_.size()].data();
  }
  switch (depth_) {
    case 1:
      return Interleave<1>(from.data(), depth_, pixels_, out.data());
    case 3:
      return InterleaveThree(from.data(), pixels_, out.data());
    case 4:
      return Interleave<4>(from.data(), depth_, pixels_, out.data());
    default:
      return Interleave<0>(from.data(), depth_, pixels_, out.data());
  }
}

}  // namespace replicant::env
