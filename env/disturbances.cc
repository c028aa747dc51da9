#include "env/disturbances.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "env/name_pattern.h"

namespace replicant::env {
namespace {

// Bodies, the world excluded, whose names match.
std::vector<int> BodiesOf(const Physics& physics, const std::string& pattern) {
  const mjModel& model = physics.model();
  std::vector<int> bodies;
  std::vector<std::string> names;
  for (int body = 1; body < model.nbody; ++body) {
    const char* name = mj_id2name(&model, mjOBJ_BODY, body);
    if (name != nullptr) names.emplace_back(name);
    if (MatchesPattern(pattern, name)) bodies.push_back(body);
  }
  if (bodies.empty()) {
    throw InvalidArgument(fmt::format(
        "{}: task.disturbances.push.bodies: no body matches '{}'; the names "
        "are {}",
        physics.name(), pattern, fmt::join(names, ", ")));
  }
  return bodies;
}

}  // namespace

bool DisturbanceConfig::ChangesObservations() const {
  return delays.observations > 0 || gaussian.observations > 0.0 ||
         dropped.probability > 0.0 || stuck.probability > 0.0;
}

bool DisturbanceConfig::IsAny() const {
  return ChangesObservations() || delays.actions > 0 || delays.rewards > 0 ||
         gaussian.actions > 0.0 || repetition.probability > 0.0 ||
         (push.when.probability > 0.0 && push.newton > 0.0);
}

DisturbanceConfig DisturbanceConfig::Read(config::Reader& reader) {
  DisturbanceConfig c;
  config::Reader delays = reader.Section("delays", "in steps of the agent");
  delays.Field("actions", &c.delays.actions, {0, 1000},
               "steps between an action and its effect");
  delays.Field("observations", &c.delays.observations, {0, 1000},
               "steps between a state and its observation; frames.delay is "
               "the pixels'");
  delays.Field("rewards", &c.delays.rewards, {0, 1000},
               "steps between an event and its reward; rewards later than the "
               "end of the episode are lost");
  config::Reader gaussian =
      reader.Section("gaussian", "noise, by its standard deviation");
  gaussian.Field("actions", &c.gaussian.actions, {0.0, 1e6},
                 "added to each number of an action, then clipped to its "
                 "bounds");
  gaussian.Field("observations", &c.gaussian.observations, {0.0, 1e6},
                 "added to each number of the state");
  reader.Section("dropped", &c.dropped, "numbers of the state that become 0");
  reader.Section("stuck", &c.stuck,
                 "numbers of the state that keep their value");
  reader.Section("repetition", &c.repetition,
                 "actions that act again in place of the next ones");
  config::Reader push =
      reader.Section("push", "random forces on bodies of the simulation");
  push.Field("bodies", &c.push.bodies,
             "names of the bodies, as a pattern of the shell");
  push.Field("newton", &c.push.newton, {0.0, 1e9},
             "standard deviation of each component of the force");
  push.Field("probability", &c.push.when.probability, {0.0, 1.0},
             "of a begin at each step, for each body");
  push.Field("steps", &c.push.when.steps, {1, 1'000'000},
             "agent steps that a push lasts");
  reader.Section("frames", &c.frames, "frames of the cameras");
  return c;
}

void Disturbances::DelayLine::Fill(std::span<const double> value) {
  for (std::vector<double>& old : values_)
    old.assign(value.begin(), value.end());
  next_ = 0;
}

std::span<const double> Disturbances::DelayLine::Push(
    std::span<const double> value) {
  std::ranges::copy(value, values_[next_].begin());
  next_ = (next_ + 1) % values_.size();
  return values_[next_];
}

Disturbances::Disturbances(std::unique_ptr<Environment> environment,
                           const DisturbanceConfig& config,
                           const RandomStream& random)
    : EnvironmentWrapper(std::move(environment)),
      config_(config),
      stream_(random),
      random_(random),
      actions_(config.delays.actions),
      states_(config.delays.observations),
      rewards_(config.delays.rewards) {
  if (config_.push.when.probability > 0.0 && config_.push.newton > 0.0) {
    bodies_ = BodiesOf(inner().physics(), config_.push.bodies);
  }
  action_.resize(static_cast<size_t>(action_spec().size()));
  const auto size = static_cast<size_t>(observation_spec().state_size());
  state_.resize(size);
  delivered_.resize(size);
  dropped_left_.resize(size);
  stuck_left_.resize(size);
  stuck_value_.resize(size);
  push_left_.resize(bodies_.size());
}

ObservationBuffer Disturbances::WithOwnState(const ObservationBuffer& out) {
  ObservationBuffer buffer = out;
  if (config_.ChangesObservations()) buffer.state = state_;
  return buffer;
}

void Disturbances::Deliver(const ObservationBuffer& out) const {
  if (config_.ChangesObservations() && !out.state.empty()) {
    std::ranges::copy(delivered_, out.state.begin());
  }
}

TimeStep Disturbances::Reset(const ObservationBuffer& out) {
  CheckBuffer(out, observation_spec(), "Disturbances");
  const TimeStep step = inner().Reset(WithOwnState(out));
  random_ =
      stream_.Substream(fmt::format("episode-{}", counters().episodes - 1));
  is_episode_over_ = false;
  num_episode_steps_ = 0;
  repeated_steps_left_ = 0;
  std::ranges::fill(dropped_left_, 0);
  std::ranges::fill(stuck_left_, 0);
  std::ranges::fill(push_left_, 0);
  rewards_.Fill(std::array{0.0});
  DisturbState(/*is_first=*/true);
  Deliver(out);
  return step;
}

TimeStep Disturbances::Step(std::span<const double> action,
                            const ObservationBuffer& out) {
  if (is_episode_over_) return Reset(out);
  CheckBuffer(out, observation_spec(), "Disturbances");
  CheckAction(action, action_spec(), "Disturbances");
  const std::span<const double> disturbed = DisturbAction(action);
  PushBodies();
  TimeStep step = inner().Step(disturbed, WithOwnState(out));
  ++num_episode_steps_;
  step.reward = rewards_.Push(std::array{step.reward})[0];
  DisturbState(/*is_first=*/false);
  Deliver(out);
  is_episode_over_ = step.IsLast();
  return step;
}

void Disturbances::SeekEpisode(int64_t episode) {
  inner().SeekEpisode(episode);
  is_episode_over_ = true;
}

void Disturbances::Observe(const ObservationBuffer& out) {
  inner().Observe(
      config_.ChangesObservations()
          ? ObservationBuffer{.pixels = out.pixels, .frame = out.frame}
          : out);
  Deliver(out);
}

std::span<const double> Disturbances::DisturbAction(
    std::span<const double> action) {
  const bool is_first = num_episode_steps_ == 0;
  // one draw a step, used or not
  const bool begins = config_.repetition.probability > 0.0 &&
                      random_.Uniform() < config_.repetition.probability;
  const bool is_repeated = repeated_steps_left_ > 0;
  if (is_repeated) {
    --repeated_steps_left_;
  } else if (begins) {
    repeated_steps_left_ = config_.repetition.steps;
  }
  if (!is_repeated) {
    std::ranges::copy(action, action_.begin());
    if (config_.gaussian.actions > 0.0) {
      const ActionSpec& spec = action_spec();
      for (size_t i = 0; i < action_.size(); ++i) {
        action_[i] += config_.gaussian.actions * random_.Normal();
        if (spec.HasBounds(i)) {
          action_[i] = std::clamp(action_[i], spec.minimum[i], spec.maximum[i]);
        }
      }
    }
  }
  if (is_first) actions_.Fill(action_);
  return actions_.Push(action_);
}

void Disturbances::DisturbState(bool is_first) {
  if (!config_.ChangesObservations()) return;
  for (size_t i = 0; i < state_.size(); ++i) {
    double value = state_[i];
    if (config_.gaussian.observations > 0.0) {
      value += config_.gaussian.observations * random_.Normal();
    }
    if (Fails(config_.stuck, random_, &stuck_left_[i]) && !is_first) {
      value = stuck_value_[i];  // the last before the failure
    } else {
      stuck_value_[i] = value;
    }
    if (Fails(config_.dropped, random_, &dropped_left_[i])) value = 0.0;
    state_[i] = value;
  }
  if (is_first) states_.Fill(state_);
  std::ranges::copy(states_.Push(state_), delivered_.begin());
}

void Disturbances::PushBodies() {
  if (bodies_.empty()) return;
  mjData& data = mutable_physics().mutable_data();
  for (size_t i = 0; i < bodies_.size(); ++i) {
    double* force = data.xfrc_applied + 6 * bodies_[i];
    const bool was_pushed = push_left_[i] > 0;
    const bool is_pushed = Fails(config_.push.when, random_, &push_left_[i]);
    for (int axis = 0; axis < 3; ++axis) {
      // one draw for each, used or not
      const double drawn = config_.push.newton * random_.Normal();
      if (!is_pushed) {
        force[axis] = 0.0;
      } else if (!was_pushed) {
        force[axis] = drawn;
      }
    }
  }
}

}  // namespace replicant::env
