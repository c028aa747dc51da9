#pragma once

#include <cstdint>

#include "base/config/reader.h"

namespace replicant::agents {

// Section `actors.exploration`: Gaussian noise on the policy's actions, in
// units of half the action's range. Agent steps are counted over all actors
// together.
struct ExplorationConfig {
  // Agent steps with uniform random actions before the policy acts.
  int64_t random_steps = 500;
  double initial_scale = 0.3;
  double final_scale = 0.3;
  // Agent steps of an environment that share a draw, of noise and of random
  // actions. Held noise explores farther, since single draws of a random walk
  // cancel out, but it topples tasks that need balance.
  int64_t initial_hold_steps = 1;
  int64_t final_hold_steps = 1;
  // Scale and hold change linearly from initial to final over `decay_steps`
  // agent steps; 0 steps: final from the start.
  int64_t decay_steps = 0;
  // Environment i of N acts with scale * spread^(i / (N - 1)), as in Ape-X
  // (arXiv:1803.00933). 1: all environments have the same scale.
  double spread = 1.0;

  static ExplorationConfig Read(config::Reader& reader);

  bool IsRandom(int64_t agent_steps) const {
    return agent_steps < random_steps;
  }
  // Returns the scale of environment `index` of `num_environments` after
  // `agent_steps`.
  double Scale(int64_t agent_steps, int64_t index,
               int64_t num_environments) const;
  // Returns the steps that share a draw after `agent_steps`.
  int64_t HoldSteps(int64_t agent_steps) const;

 private:
  // Returns the value on the line from `initial` to `final_value`, which is
  // reached after decay_steps.
  double Decayed(double initial, double final_value, int64_t agent_steps) const;
};

}  // namespace replicant::agents
