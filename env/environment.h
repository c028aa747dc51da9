#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "env/goal_reward.h"
#include "env/physics.h"
#include "env/specs.h"
#include "env/time_step.h"

namespace replicant::env {

// Event counts since an environment was made.
struct EnvironmentCounters {
  int64_t episodes = 0;     // started, including those skipped by a seek
  int64_t steps = 0;        // control steps; resets are not counted
  int64_t divergences = 0;  // steps after which the physics was not valid
};

// A reinforcement-learning environment in the terms of dm_env. It writes its
// observations into buffers of the caller; a step allocates nothing.
//
// Thread-safety: one thread at a time; different objects are independent.
class Environment {
 public:
  virtual ~Environment() = default;

  virtual const ObservationSpec& observation_spec() const = 0;
  virtual const ActionSpec& action_spec() const = 0;

  // Starts an episode; returns its first step.
  // Throws InvalidArgument, changing nothing, if a buffer has the wrong size.
  virtual TimeStep Reset(const ObservationBuffer& out) = 0;

  // Makes one control step. After a last step, and before the first Reset(), it
  // starts an episode instead and ignores the action, as dm_env does.
  //
  // A step after which the physics has diverged ends the episode with reward 0
  // and discount 0; its observation shows the model's default pose.
  //
  // Throws InvalidArgument, changing nothing, unless the action has
  // action_spec().size() finite elements and every buffer has the right size.
  virtual TimeStep Step(std::span<const double> action,
                        const ObservationBuffer& out) = 0;

  // Ends the episode. The next step or Reset() starts episode `episode` >= 0 of
  // this environment, counted from 0. The episode number and the actions since
  // its start determine the state to the bit, so a resumed run restores it.
  virtual void SeekEpisode(int64_t episode) = 0;

  // Writes the observation of the current state again, for wrappers that decide
  // after a step whether they need it. Throws InvalidArgument if a buffer has
  // the wrong size.
  virtual void Observe(const ObservationBuffer& out) = 0;

  // Simulated time of one step.
  virtual double control_timestep_s() const = 0;

  // The simulation, for renderers (they use scratch space in mjData).
  virtual const Physics& physics() const = 0;
  virtual Physics& mutable_physics() = 0;

  // Whether a reset may change height fields, textures or meshes of the model,
  // so that a renderer must reload its copies.
  virtual bool ResetChangesAssets() const = 0;

  // Whether every control step's reward is known to be in [0, 1], as in the
  // Control Suite.
  virtual bool HasUnitRewards() const { return false; }

  // The rewards of other goals, of a goal environment; otherwise null. Owned by
  // the environment.
  virtual GoalReward* goal_reward() { return nullptr; }

  // Announces the action of the next Step(), for environments that several
  // objects step together: a VectorEnvironment announces all actions of a batch
  // before the first Step(). Step() still gets the action.
  virtual void Announce(std::span<const double> /*action*/) {}
  // Whether this is one of those environments: it cannot be brought to a step
  // alone.
  virtual bool StepsWithOthers() const { return false; }

  virtual const EnvironmentCounters& counters() const = 0;
};

// Base of wrappers: an environment that owns another one and forwards every
// call that a subclass does not override.
class EnvironmentWrapper : public Environment {
 public:
  explicit EnvironmentWrapper(std::unique_ptr<Environment> environment)
      : environment_(std::move(environment)) {}

  const ObservationSpec& observation_spec() const override {
    return environment_->observation_spec();
  }
  const ActionSpec& action_spec() const override {
    return environment_->action_spec();
  }
  TimeStep Reset(const ObservationBuffer& out) override {
    return environment_->Reset(out);
  }
  TimeStep Step(std::span<const double> action,
                const ObservationBuffer& out) override {
    return environment_->Step(action, out);
  }
  void SeekEpisode(int64_t episode) override {
    environment_->SeekEpisode(episode);
  }
  void Observe(const ObservationBuffer& out) override {
    environment_->Observe(out);
  }
  double control_timestep_s() const override {
    return environment_->control_timestep_s();
  }
  const Physics& physics() const override { return environment_->physics(); }
  Physics& mutable_physics() override {
    return environment_->mutable_physics();
  }
  bool ResetChangesAssets() const override {
    return environment_->ResetChangesAssets();
  }
  bool HasUnitRewards() const override {
    return environment_->HasUnitRewards();
  }
  GoalReward* goal_reward() override { return environment_->goal_reward(); }
  void Announce(std::span<const double> action) override {
    environment_->Announce(action);
  }
  bool StepsWithOthers() const override {
    return environment_->StepsWithOthers();
  }
  const EnvironmentCounters& counters() const override {
    return environment_->counters();
  }

 protected:
  Environment& inner() { return *environment_; }
  const Environment& inner() const { return *environment_; }

 private:
  std::unique_ptr<Environment> environment_;
};

}  // namespace replicant::env
