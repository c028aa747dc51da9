#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "replicator/replicator.h"

namespace replicant::learner {

// Seed of first values and random numbers.
inline constexpr uint64_t kReplicaSeed = 3;

// A training for any replicator: its batches and its steps.
struct Training {
  // The batches depend on step and global row only.
  replicator::InputFn input;
  // They take turns, on one input.
  std::vector<replicator::StepFn> steps;
  // Sets first values that follow from others. Empty for none.
  std::function<void(runtime::VariableStore&)> start = {};
  int num_steps = 10;
};

}  // namespace replicant::learner
