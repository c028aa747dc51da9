#pragma once

#include "base/config/reader.h"
#include "base/rng.h"

namespace replicant::env {

// What works fails at a step with `probability`, for `steps` steps of the
// agent.
struct Failure {
  double probability = 0.0;
  int steps = 1;

  static Failure Read(config::Reader& reader);
};

// Whether the failure begins or goes on; `*left` counts its steps, 0 at first.
// One draw for each step, unless the probability is 0.
bool Fails(const Failure& failure, RandomStream& random, int* left);

}  // namespace replicant::env
