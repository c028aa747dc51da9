#pragma once

#include <cstdint>

#include "core/config/reader.h"

namespace replicant::agents {

// Section `exploration`: the scale of the Gaussian noise that an actor adds to
// its actions, which lie in [-1, 1].
struct ExplorationConfig {
  double sigma = 0.3;
  double final_sigma = 0.3;
  int64_t decay_steps = 0;    // agent steps of the whole run; 0: sigma for good
  double actor_spread = 1.0;  // factor between the first actor and the last

  static ExplorationConfig Read(config::Reader& reader);
};

// The scale for one of `num_actors` actors when the run has made `steps` agent
// steps:
//
//   sigma(steps) * actor_spread^(actor / (num_actors - 1))
//
// with sigma in a straight line from `sigma` to `final_sigma` over decay_steps
// as in DrQ-v2 (arXiv:2107.09645), and actors that differ as in Ape-X
// (arXiv:1803.00933), whose ladder is geometric too.
// Requires 0 <= actor < num_actors and steps >= 0 (checked).
double NoiseScale(const ExplorationConfig& config, int64_t steps, int64_t actor,
                  int64_t num_actors);

}  // namespace replicant::agents
