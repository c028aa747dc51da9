#include "actors/hindsight.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "base/error.h"

namespace replicant::actors {

HindsightConfig HindsightConfig::Read(config::Reader& reader) {
  HindsightConfig c;
  reader.Field("goals", &c.goals, {0, 100},
               "copies of each step that are written with a goal achieved "
               "later in its episode (HER, strategy future); 4 is usual. 0: "
               "none");
  return c;
}

void HindsightSink::BeginEpisode() {
  seen_.clear();
  actions_.clear();
  sink_.BeginEpisode();
}

void HindsightSink::Keep(std::span<const std::byte> observation,
                         std::span<const std::byte> frame) {
  Seen& seen = seen_.emplace_back();
  seen.numbers.resize(observation.size() / sizeof(float));
  std::memcpy(seen.numbers.data(), observation.data(), observation.size());
  seen.frame.assign(frame.begin(), frame.end());
}

void HindsightSink::Append(const replay::Step& step) {
  Keep(step.observation, step.frame);
  actions_.emplace_back(step.action.begin(), step.action.end());
  sink_.Append(step);
}

void HindsightSink::EndEpisode(std::span<const std::byte> observation,
                               std::span<const std::byte> frame) {
  Keep(observation, frame);
  sink_.EndEpisode(observation, frame);
  if (!is_repeating_) WriteCopies();
  seen_.clear();
  actions_.clear();
}

void HindsightSink::WriteCopies() {
  uint32_t content = 0;
  for (const auto& action : actions_) content = Crc32c(action, content);
  RandomStream random(
      options_.seed,
      fmt::format("hindsight/{}/{:08x}", options_.environment, content));
  const size_t length = actions_.size();
  for (int64_t copy = 0; copy < options_.goals; ++copy) {
    for (size_t t = 0; t < length;) {
      const int64_t later = random.UniformInt(static_cast<int64_t>(length - t));
      t = WriteSegment(t, t + 1 + static_cast<size_t>(later));
    }
  }
}

std::vector<float> HindsightSink::Relabelled(
    size_t t, std::span<const double> goal) const {
  std::vector<float> numbers = seen_[t].numbers;
  std::ranges::transform(goal, numbers.begin() + options_.desired,
                         [](double x) { return static_cast<float>(x); });
  return numbers;
}

size_t HindsightSink::WriteSegment(size_t begin, size_t end) {
  const std::vector<double> goal = reward_.Achieved(static_cast<int64_t>(end));
  sink_.BeginEpisode();
  size_t t = begin;
  for (double discount = 1.0; t < end && discount > 0.0; ++t) {
    const env::GoalReward::Result result =
        reward_.Of(static_cast<int64_t>(t) + 1, goal);
    const std::vector<float> numbers = Relabelled(t, goal);
    discount = result.discount;
    sink_.Append({.observation = std::as_bytes(std::span(numbers)),
                  .frame = seen_[t].frame,
                  .action = actions_[t],
                  .reward = static_cast<float>(result.reward),
                  .discount = static_cast<float>(discount),
                  .priority = std::nullopt});
  }
  const std::vector<float> last = Relabelled(t, goal);
  sink_.EndEpisode(std::as_bytes(std::span(last)), seen_[t].frame);
  return t;
}

HindsightSinks::HindsightSinks(const HindsightConfig& config,
                               const std::string& task, uint64_t seed,
                               int64_t first_environment,
                               env::VectorEnvironment* environments,
                               std::vector<replay::StepSink*> sinks)
    : sinks_(std::move(sinks)) {
  if (config.goals == 0) return;
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("actors.hindsight.goals: {}: {}; allowed: 0",
                                  config.goals, why));
  };
  const env::ObservationSpec& spec = environments->observation_spec();
  const auto desired = std::ranges::find(
      spec.arrays, env::GoalReward::kDesiredGoal, &env::ArraySpec::name);
  if (desired == spec.arrays.end()) {
    refuse(fmt::format("the observation of {} has no array '{}'", task,
                       env::GoalReward::kDesiredGoal));
  }
  if (desired->dtype != DType::kF64) {
    refuse(fmt::format("'{}' of {} is an image; goals are numbers",
                       desired->name, task));
  }
  for (int e = 0; e < environments->size(); ++e) {
    env::GoalReward* const reward = environments->environment(e).goal_reward();
    if (reward == nullptr) {
      refuse(
          fmt::format("{} has no rewards of other goals; hint: an array "
                      "'{}' and a method "
                      "compute_reward(achieved_goal, desired_goal, info)",
                      task, env::GoalReward::kAchievedGoal));
    }
    if (reward->goal_size() != desired->shape.num_elements()) {
      refuse(fmt::format("'{}' has {} numbers, but '{}' is {}",
                         env::GoalReward::kAchievedGoal, reward->goal_size(),
                         desired->name, desired->shape.ToString()));
    }
    relabelling_.push_back(std::make_unique<HindsightSink>(
        HindsightSink::Options{.goals = config.goals,
                               .seed = seed,
                               .environment = first_environment + e,
                               .desired = spec.Offset(desired->name)},
        reward, sinks_[static_cast<size_t>(e)]));
    sinks_[static_cast<size_t>(e)] = relabelling_.back().get();
  }
}

void HindsightSinks::SetRepeating(bool is_repeating) {
  for (const auto& sink : relabelling_) sink->SetRepeating(is_repeating);
}

}  // namespace replicant::actors
