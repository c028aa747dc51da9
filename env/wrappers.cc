#include "env/wrappers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "env/interleave.h"

namespace replicant::env {
namespace {

void CheckPositive(const char* what, int64_t value) {
  if (value < 1) {
    throw InvalidArgument(fmt::format("{} must be >= 1, got {}", what, value));
  }
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
  // check the buffer before simulating, since only the last step receives it
  CheckBuffer(out, observation_spec(), "ActionRepeat");
  double reward = 0.0;
  int made = 0;
  bool is_observed = false;
  TimeStep step;
  do {
    // the last step writes the observation; a step that ends the episode
    // earlier is observed below
    is_observed = made + 1 == count_;
    step = inner().Step(action, is_observed ? out : ObservationBuffer{});
    ++made;
    reward += step.reward;
    // after a last step this step is a reset and is not repeated
  } while (made < count_ && step.step_type == StepType::kMid);
  if (!is_observed) inner().Observe(out);
  step.reward = reduction_ == RewardReduction::kMean ? reward / made : reward;
  step.control_steps = made;
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
  // the discount stays: the task may have ended the episode at the same step
  if (step_ >= max_steps_) step.step_type = StepType::kLast;
  is_episode_over_ = step.IsLast();
  return step;
}

FrameStack::FrameStack(int64_t pixels, int64_t depth)
    : frame_size_(static_cast<size_t>(pixels) * kPixelBytes),
      depth_(static_cast<size_t>(depth)) {
  CheckPositive("FrameStack: pixels", pixels);
  if (depth < 1 || depth > int64_t{kMaxInterleavedFrames}) {
    throw InvalidArgument(
        fmt::format("FrameStack: depth must be in [1, {}], got {}",
                    kMaxInterleavedFrames, depth));
  }
  frames_.assign(depth_ + 1, std::vector<uint8_t>(frame_size_));
}

void FrameStack::Push() {
  next_ = (next_ + 1) % frames_.size();
  count_ = std::min(count_ + 1, depth_);
}

void FrameStack::Fill() {
  count_ = 0;
  Push();
}

std::span<const uint8_t> FrameStack::newest() const {
  REPLICANT_CHECK(count_ > 0, "an empty stack");
  return frames_[(next_ + frames_.size() - 1) % frames_.size()];
}

void FrameStack::CopyTo(std::span<uint8_t> out) const {
  REPLICANT_CHECK(count_ > 0 && out.size() == depth_ * frame_size_,
                  "{} frames, {} bytes", count_, out.size());
  // oldest first; where there are too few, the first one stands for those
  // before it
  std::array<std::span<const uint8_t>, kMaxInterleavedFrames> from;
  for (size_t i = 0; i < depth_; ++i) {
    const size_t back = std::min(depth_ - i, count_);
    from[i] = frames_[(next_ + frames_.size() - back) % frames_.size()];
  }
  InterleaveFrames(std::span(from).first(depth_), out);
}

}  // namespace replicant::env
