#pragma once

#include <cstdint>
#include <vector>

#include "agents/d4pg/config.h"
#include "agents/d4pg/distribution.h"
#include "agents/d4pg/networks.h"
#include "base/config/reader.h"
#include "tools/probe/step_graph.h"

namespace replicant::probe::d4pg {

// A D4PG agent and its training outside of a run: all settings that determine
// the graph of a learner's step.
struct StepGraphConfig {
  agents::d4pg::D4pgConfig agent;
  std::vector<int64_t> observation = {24};
  int64_t state_size = 0;  // of a state beside pixels; 0: none
  int64_t action_size = 6;
  int64_t batch_size = 256;
  double discount = 0.99;       // per agent step
  double largest_reward = 1.0;  // of an agent step
  int64_t seed = 0;

  static StepGraphConfig Read(config::Reader& reader);

  agents::LearningSpec Spec(DType dtype) const;
  agents::d4pg::Support MakeSupport() const;
};

// Builds the whole update, with losses "critic_loss" and "policy_loss" and
// outputs "priority", "value" and, with random shift, "shift" and "next_shift".
// Throws what BuildUpdate() and MakeSupport() throw.
StepGraph BuildStepGraph(const StepGraphConfig& config, DType dtype);

}  // namespace replicant::probe::d4pg
