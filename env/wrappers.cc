#include "env/wrappers.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "core/base/error.h"

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

FrameStack::FrameStack(int64_t pixels, int64_t channels, int64_t depth)
    : pixels_(pixels), channels_(channels), depth_(depth) {
  CheckPositive("FrameStack: pixels", pixels);
  CheckPositive("FrameStack: channels", channels);
  CheckPositive("FrameStack: depth", depth);
  frame_.resize(static_cast<size_t>(pixels * channels));
  stack_.resize(static_cast<size_t>(pixels * channels * depth));
}

void FrameStack::Push() {
  const auto channels = static_cast<size_t>(channels_);
  const size_t row = channels * static_cast<size_t>(depth_);
  // per pixel: the newer frames move down by one, the new one comes behind
  for (size_t i = 0; i < static_cast<size_t>(pixels_); ++i) {
    uint8_t* pixel = stack_.data() + i * row;
    std::memmove(pixel, pixel + channels, row - channels);
    std::memcpy(pixel + row - channels, frame_.data() + i * channels, channels);
  }
}

void FrameStack::Fill() {
  for (int64_t i = 0; i < depth_; ++i) Push();
}

}  // namespace replicant::env
