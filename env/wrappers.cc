#include "env/wrappers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
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

constexpr const char* kFloat32Wanted = "finite numbers of float32";

// The networks and the replay take float32.
bool IsFloat32(double value) {
  return std::abs(value) <=
         static_cast<double>(std::numeric_limits<float>::max());
}

// The array and the element in it that has this place among all numbers.
std::pair<std::string, int64_t> ElementAt(const ObservationSpec& spec,
                                          int64_t place) {
  for (const ArraySpec& array : spec.arrays) {
    if (array.dtype != DType::kF64) continue;
    const int64_t size = array.shape.num_elements();
    if (place < size) return {array.name, place};
    place -= size;
  }
  REPLICANT_CHECK(false, "element {} beyond the observation", place);
}

}  // namespace

NumberCheck::NumberCheck(std::unique_ptr<Environment> environment,
                         std::string name, int64_t index)
    : EnvironmentWrapper(std::move(environment)),
      name_(std::move(name)),
      index_(index) {}

TimeStep NumberCheck::Reset(const ObservationBuffer& out) {
  return Checked(inner().Reset(out), out);
}

TimeStep NumberCheck::Step(std::span<const double> action,
                           const ObservationBuffer& out) {
  return Checked(inner().Step(action, out), out);
}

void NumberCheck::SeekEpisode(int64_t episode) {
  inner().SeekEpisode(episode);
  next_episode_ = episode;
}

void NumberCheck::Observe(const ObservationBuffer& out) {
  inner().Observe(out);
  CheckObservation(out);
}

TimeStep NumberCheck::Checked(const TimeStep& step,
                              const ObservationBuffer& out) {
  ++step_;
  if (step.IsFirst()) {
    step_ = 0;
    ++next_episode_;
  }
  if (!IsFloat32(step.reward)) {
    Refuse(fmt::format("the reward is {}", step.reward), kFloat32Wanted);
  }
  if (!(step.discount >= 0.0 && step.discount <= 1.0)) {
    Refuse(fmt::format("the discount is {}", step.discount), "one in [0, 1]");
  }
  CheckObservation(out);
  return step;
}

void NumberCheck::CheckObservation(const ObservationBuffer& out) {
  const auto bad = std::ranges::find_if_not(out.state, IsFloat32);
  if (bad == out.state.end()) return;
  const auto [array, element] = ElementAt(
      observation_spec(), static_cast<int64_t>(bad - out.state.begin()));
  Refuse(fmt::format("observation '{}'[{}] is {}", array, element, *bad),
         kFloat32Wanted);
}

void NumberCheck::Refuse(const std::string& what, const std::string& wanted) {
  SeekEpisode(next_episode_);
  throw InvalidArgument(
      fmt::format("{}: environment {}, episode {}, step {}: {}; want {}", name_,
                  index_, next_episode_ - 1, step_, what, wanted));
}

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
  double discount = 1.0;
  int made = 0;
  bool is_observed = false;
  TimeStep step;
  do {
    // the last step writes the observation; a step that ends the episode
    // earlier is observed below
    is_observed = made + 1 == count_;
    step = inner().Step(action, is_observed ? out : ObservationBuffer{});
    ++made;
    reward += discount * step.reward;
    discount *= step.discount;
    // after a last step this step is a reset and is not repeated
  } while (made < count_ && step.step_type == StepType::kMid);
  if (!is_observed) inner().Observe(out);
  step.reward = reduction_ == RewardReduction::kMean ? reward / made : reward;
  step.discount = discount;
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

FrameStack::FrameStack(int64_t pixels, int64_t depth, int64_t channels)
    : frame_size_(static_cast<size_t>(pixels * channels)),
      depth_(static_cast<size_t>(depth)),
      pixel_bytes_(static_cast<size_t>(channels)) {
  CheckPositive("FrameStack: pixels", pixels);
  CheckPositive("FrameStack: channels", channels);
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
  InterleaveFrames(std::span(from).first(depth_), out, pixel_bytes_);
}

}  // namespace replicant::env
