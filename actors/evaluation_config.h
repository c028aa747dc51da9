#pragma once

#include <cstdint>

#include "core/config/reader.h"

namespace replicant::actors {

// Section `evaluation`: how the policy is tried out without noise.
struct EvaluationConfig {
  double interval_s = 30.0;
  int64_t episodes = 10;
  int64_t seed = 1000;  // of the environment's first states

  static EvaluationConfig Read(config::Reader& reader) {
    EvaluationConfig c;
    reader.Field("interval_s", &c.interval_s, {0.1, 1e6},
                 "seconds between two evaluations");
    reader.Field("episodes", &c.episodes, {1, 10'000},
                 "episodes of one evaluation");
    reader.Field("seed", &c.seed, {0, 1'000'000'000},
                 "seed of the episodes' first states");
    return c;
  }
};

}  // namespace replicant::actors
