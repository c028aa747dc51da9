#pragma once

#include <cstdint>

#include "core/config/reader.h"

namespace replicant::agents {

// Section `actors.exploration`: Gaussian noise on the policy's actions, in
// units of half the action's range. Agent steps are those of all actors
// together.
struct ExplorationConfig {
  // Agent steps with uniform random actions before the policy acts.
  int64_t random_steps = 500;
  // The scale changes linearly from `initial_scale` to `final_scale` over
  // `decay_steps` agent steps; 0 steps: final_scale from the start.
  double initial_scale = 0.3;
  double final_scale = 0.3;
  int64_t decay_steps = 0;
  // Agent steps of an environment that share a draw, of noise and of random
  // actions. Held noise goes farther: single draws of a random walk cancel out.
  int64_t hold_steps = 1;
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
};

}  // namespace replicant::agents
