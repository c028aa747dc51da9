#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/rng.h"
#include "env/environment.h"
#include "env/model_randomization.h"
#include "env/task.h"

namespace replicant::env {

struct ControlOptions {
  // Simulated time after which an episode is cut off (discount 1), at the first
  // control step that reaches it; kInfinity for never. A task that ends at this
  // very step terminates: its discount counts.
  double time_limit_s = 0.0;
  // Simulated time per action, a whole multiple of the model's timestep; 0 for
  // one timestep.
  double control_timestep_s = 0.0;
  // A task of the Control Suite: rewards are in [0, 1], and dm_control's rule
  // holds that the step of the time limit cuts off (discount 1), whatever the
  // task says.
  bool is_of_suite = false;
  // What a reset draws of the model, before the task draws the start.
  std::vector<FieldRandomization> randomization;
};

// An environment of a physics and a task, as in the Control Suite.
//
// Step: controls := action; physics advances by control_timestep; reward and
// observation are read. Reset: the model's randomization; default pose; the
// task draws a start; derived quantities are computed with actuation off.
//
// Episode k draws from substream "episode-k" of the environment's stream, so it
// does not depend on earlier episodes; the model's randomization draws from
// substream "episode-k" of "randomization".
//
// Source: dm_control.rl.control.Environment (arXiv:2006.12983, sec. 2).
class ControlEnvironment : public Environment {
 public:
  // Throws InvalidArgument if the task does not fit the model or the control
  // timestep is not a multiple of the physics timestep.
  ControlEnvironment(std::unique_ptr<Physics> physics,
                     std::unique_ptr<Task> task, const ControlOptions& options,
                     const RandomStream& random);

  const ObservationSpec& observation_spec() const override { return spec_; }
  const ActionSpec& action_spec() const override { return action_spec_; }
  TimeStep Reset(const ObservationBuffer& out) override;
  TimeStep Step(std::span<const double> action,
                const ObservationBuffer& out) override;
  void SeekEpisode(int64_t episode) override;
  void Observe(const ObservationBuffer& out) override;
  const Physics& physics() const override { return *physics_; }
  Physics& mutable_physics() override { return *physics_; }
  bool ResetChangesAssets() const override {
    return task_->ResetChangesAssets() ||
           (randomizer_ && randomizer_->changes_assets());
  }
  bool HasUnitRewards() const override { return is_of_suite_; }
  const EnvironmentCounters& counters() const override { return counters_; }

  // Starts an episode in a given state, mj_getState of mjSTATE_INTEGRATION.
  // Set model arrays that the reset would have randomized before this call,
  // through mutable_physics(). Throws InvalidArgument for a state of another
  // size, an invalid one, and one with a time above 0 if the model lets bodies
  // sleep: MuJoCo's states do not say which of them do.
  TimeStep ResetTo(std::span<const double> state, const ObservationBuffer& out);

  const Task& task() const { return *task_; }
  int physics_steps_per_action() const { return physics_steps_; }
  // Control steps of an episode, rounded up; infinite without a time limit.
  double step_limit() const { return step_limit_; }
  double control_timestep_s() const override {
    return physics_->timestep_s() * physics_steps_;
  }

 private:
  void Write(const ObservationBuffer& out) const;
  TimeStep FirstStep(const ObservationBuffer& out);

  std::unique_ptr<Physics> physics_;
  std::unique_ptr<Task> task_;
  const bool is_of_suite_;
  RandomStream random_;
  std::optional<ModelRandomizer> randomizer_;
  ObservationSpec spec_;
  ActionSpec action_spec_;
  int physics_steps_ = 1;
  double step_limit_ = 0.0;
  int64_t step_count_ = 0;
  bool is_episode_over_ = true;
  EnvironmentCounters counters_;
};

}  // namespace replicant::env
