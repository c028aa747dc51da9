#include "env/control_environment.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"

namespace replicant::env {
namespace {

// Maximum number of attempts to draw a valid start.
constexpr int kMaxResets = 100;

// total_s / part_s, rounded if it is a whole number but for rounding.
double NumParts(double total_s, double part_s) {
  constexpr double kTolerance = 1e-8;
  const double ratio = total_s / part_s;
  const double whole = std::round(ratio);
  return std::abs(ratio - whole) <= kTolerance ? whole : ratio;
}

// Physics steps in one control step.
int StepsPerAction(const Physics& physics, double control_timestep_s) {
  if (control_timestep_s == 0.0) return 1;
  const double ratio = NumParts(control_timestep_s, physics.timestep_s());
  if (!(ratio >= 1.0) || ratio > std::numeric_limits<int>::max() ||
      ratio != std::round(ratio)) {
    throw InvalidArgument(
        fmt::format("{}: control timestep {} s must be a whole multiple of the "
                    "physics timestep {} s",
                    physics.name(), control_timestep_s, physics.timestep_s()));
  }
  return static_cast<int>(ratio);
}

ActionSpec MakeActionSpec(const mjModel& model) {
  ActionSpec spec;
  for (int i = 0; i < model.nu; ++i) {
    const bool is_limited = model.actuator_ctrllimited[i] != 0;
    spec.minimum.push_back(is_limited ? model.actuator_ctrlrange[2 * i]
                                      : -mjMAXVAL);
    spec.maximum.push_back(is_limited ? model.actuator_ctrlrange[2 * i + 1]
                                      : mjMAXVAL);
  }
  return spec;
}

}  // namespace

ControlEnvironment::ControlEnvironment(std::unique_ptr<Physics> physics,
                                       std::unique_ptr<Task> task,
                                       const ControlOptions& options,
                                       const RandomStream& random)
    : physics_(std::move(physics)),
      task_(std::move(task)),
      is_of_suite_(options.is_of_suite),
      random_(random) {
  physics_steps_ = StepsPerAction(*physics_, options.control_timestep_s);
  if (!(options.time_limit_s > 0.0)) {
    throw InvalidArgument(fmt::format("{}: time limit must be > 0 s, got {}",
                                      physics_->name(), options.time_limit_s));
  }
  step_limit_ =
      NumParts(options.time_limit_s, physics_->timestep_s() * physics_steps_);
  action_spec_ = MakeActionSpec(physics_->model());

  RandomStream model_random = random_.Substream("model");
  task_->Bind(*physics_, model_random);
  if (!options.randomization.empty()) {
    randomizer_.emplace(options.randomization, *physics_);
  }
  ObservationWriter recorder;
  task_->Observe(*physics_, recorder);
  spec_ = recorder.Spec();
}

TimeStep ControlEnvironment::Reset(const ObservationBuffer& out) {
  CheckBuffer(out, spec_, physics_->name());
  const std::string name = fmt::format("episode-{}", counters_.episodes);
  if (randomizer_) {
    randomizer_->Draw(*physics_,
                      random_.Substream("randomization").Substream(name),
                      counters_.episodes);
  }
  RandomStream random = random_.Substream(name);
  for (int attempt = 1;; ++attempt) {
    physics_->Reset();
    task_->InitializeEpisode(*physics_, random);
    if (physics_->ForwardWithoutActuation() == PhysicsStatus::kOk) break;
    ++counters_.divergences;
    if (attempt == kMaxResets) {
      throw Error(fmt::format("{}: no valid start in {} attempts",
                              physics_->name(), kMaxResets));
    }
  }
  return FirstStep(out);
}

TimeStep ControlEnvironment::ResetTo(std::span<const double> state,
                                     const ObservationBuffer& out) {
  CheckBuffer(out, spec_, physics_->name());
  const mjModel& model = physics_->model();
  const auto wanted =
      static_cast<size_t>(mj_stateSize(&model, mjSTATE_INTEGRATION));
  if (state.size() != wanted) {
    throw InvalidArgument(fmt::format("{}: state has {} elements, expected {}",
                                      physics_->name(), state.size(), wanted));
  }
  mj_resetData(&model, &physics_->mutable_data());
  mj_setState(&model, &physics_->mutable_data(), state.data(),
              mjSTATE_INTEGRATION);
  // mjData::tree_asleep is part of no mjtState
  const bool can_sleep = (model.opt.enableflags & mjENBL_SLEEP) != 0;
  if (const double time_s = physics_->data().time; can_sleep && time_s > 0.0) {
    is_episode_over_ = true;
    throw InvalidArgument(fmt::format(
        "{}: the state of time {} s does not say which bodies sleep, and the "
        "model has <flag sleep=\"enable\"/>; allowed: a state right after a "
        "reset",
        physics_->name(), time_s));
  }
  if (physics_->ForwardWithoutActuation() != PhysicsStatus::kOk) {
    is_episode_over_ = true;
    throw InvalidArgument(
        fmt::format("{}: the state is not valid", physics_->name()));
  }
  return FirstStep(out);
}

TimeStep ControlEnvironment::Step(std::span<const double> action,
                                  const ObservationBuffer& out) {
  if (is_episode_over_) return Reset(out);
  CheckBuffer(out, spec_, physics_->name());
  CheckAction(action, action_spec_, physics_->name());

  std::copy(action.begin(), action.end(), physics_->mutable_ctrl().begin());
  const PhysicsStatus status = physics_->Step(physics_steps_);
  ++counters_.steps;
  ++step_count_;

  if (status == PhysicsStatus::kDiverged) {
    // one warning shows that a task has the problem
    if (counters_.divergences == 0) {
      spdlog::warn("{}: the physics diverged in step {} of episode {}: {}",
                   physics_->name(), step_count_, counters_.episodes,
                   physics_->WarningText());
    }
    ++counters_.divergences;
    is_episode_over_ = true;
    physics_->Reset();
    Write(out);
    return {.step_type = StepType::kLast, .reward = 0.0, .discount = 0.0};
  }

  TimeStep step{.step_type = StepType::kMid};
  step.reward = task_->Reward(*physics_);
  Write(out);
  const bool is_at_limit = static_cast<double>(step_count_) >= step_limit_;
  if (is_at_limit) step.step_type = StepType::kLast;
  if (!(is_at_limit && is_of_suite_)) {
    if (const auto discount = task_->Termination(*physics_)) {
      step.step_type = StepType::kLast;
      step.discount = *discount;
    }
  }
  is_episode_over_ = step.IsLast();
  return step;
}

void ControlEnvironment::SeekEpisode(int64_t episode) {
  if (episode < 0) {
    throw InvalidArgument(fmt::format("{}: episode {}; the first is 0",
                                      physics_->name(), episode));
  }
  counters_.episodes = episode;
  is_episode_over_ = true;
}

void ControlEnvironment::Observe(const ObservationBuffer& out) {
  CheckBuffer(out, spec_, physics_->name());
  Write(out);
}

void ControlEnvironment::Write(const ObservationBuffer& out) const {
  if (out.state.empty()) return;
  ObservationWriter writer(out.state);
  task_->Observe(*physics_, writer);
  writer.Finish();
}

TimeStep ControlEnvironment::FirstStep(const ObservationBuffer& out) {
  ++counters_.episodes;
  step_count_ = 0;
  is_episode_over_ = false;
  Write(out);
  return {.step_type = StepType::kFirst};
}

}  // namespace replicant::env
