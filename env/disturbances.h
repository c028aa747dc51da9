#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/config/reader.h"
#include "base/rng.h"
#include "env/environment.h"
#include "env/failure.h"
#include "env/frame_disturbances.h"

namespace replicant::env {

// Section `task.disturbances`: what separates a real robot from its simulation.
// Times are steps of the agent. After the Real-World RL Suite
// (arXiv:2003.11881).
//
// Differs from its program (realworldrl_suite, realworld_env.py): an action is
// repeated, noised and delayed in this order, not in the reverse one; its
// `actions_steps` of a repetition count the first step, too; a number is stuck
// before it is dropped; failures end with the episode. Forces are ours.
struct DisturbanceConfig {
  // An action acts, and an observation or a reward arrives, so many steps late.
  // The first action of an episode acts until the second arrives; the first
  // observation is repeated; a reward that did not arrive counts 0.
  struct Delays {
    int actions = 0, observations = 0, rewards = 0;
  } delays;
  // Standard deviations of noise added to each number of an action, which is
  // clipped to its bounds, and of the state.
  struct Gaussian {
    double actions = 0.0, observations = 0.0;
  } gaussian;
  // A number of the state that works fails with `probability` for `steps`
  // steps: it is 0 (dropped), or keeps its last value (stuck).
  Failure dropped, stuck;
  // With `probability` an action acts for `steps` more steps in place of the
  // next ones; the one after them is the agent's again.
  Failure repetition;
  // With `probability` a body whose name matches `bodies`, a pattern of the
  // shell, is pushed for `steps` steps by a force at its centre of mass with
  // three normal components of standard deviation `newton`.
  struct Push {
    std::string bodies = "*";
    double newton = 0.0;
    Failure when;
  } push;
  // Of cameras; Pixels disturbs them.
  FrameDisturbanceConfig frames;

  // Whether actions, states, rewards or bodies are disturbed.
  bool IsAny() const;
  // Whether the observation or reward may differ from the environment's.
  bool ChangesObservations() const;

  static DisturbanceConfig Read(config::Reader& reader);
};

// Disturbs the actions, states and rewards of an environment, and its bodies.
//
// Order of an action: repetition, noise, clipping, delay. Order of an
// observation: noise, failures, delay. Every draw of episode k comes from
// substream "episode-k", so that a resumed run repeats it.
class Disturbances : public EnvironmentWrapper {
 public:
  // Throws InvalidArgument for a push of an environment without a simulation or
  // with a pattern that no body matches.
  Disturbances(std::unique_ptr<Environment> environment,
               const DisturbanceConfig& config, const RandomStream& random);

  TimeStep Reset(const ObservationBuffer& out) override;
  TimeStep Step(std::span<const double> action,
                const ObservationBuffer& out) override;
  void SeekEpisode(int64_t episode) override;
  void Observe(const ObservationBuffer& out) override;

 private:
  // The last `delay` + 1 values; the first of an episode fills it.
  class DelayLine {
   public:
    explicit DelayLine(int delay) : values_(static_cast<size_t>(delay) + 1) {}
    void Fill(std::span<const double> value);
    // Adds a value; returns the one of `delay` steps ago.
    std::span<const double> Push(std::span<const double> value);

   private:
    std::vector<std::vector<double>> values_;
    size_t next_ = 0;
  };

  std::span<const double> DisturbAction(std::span<const double> action);
  // Reads the inner observation's disturbed form into delivered_.
  void DisturbState(bool is_first);
  void PushBodies();
  ObservationBuffer WithOwnState(const ObservationBuffer& out);
  void Deliver(const ObservationBuffer& out) const;

  const DisturbanceConfig config_;
  const RandomStream stream_;
  RandomStream random_;  // of the episode
  std::vector<int> bodies_;
  bool is_episode_over_ = true;
  int64_t num_episode_steps_ = 0;

  std::vector<double> action_;  // repeated, with noise
  int repeated_steps_left_ = 0;
  DelayLine actions_, states_, rewards_;
  std::vector<double> state_, delivered_;
  // failures of each number: steps left, and the value it sticks to
  std::vector<int> dropped_left_, stuck_left_;
  std::vector<double> stuck_value_;
  std::vector<int> push_left_;
};

}  // namespace replicant::env
