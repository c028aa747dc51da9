#pragma once

#include <cstdint>

#include "agents/d4pg/agent.h"
#include "learner/workloads/agent/agent_workload.h"
#include "replicator/make_replicator.h"

namespace replicant::learner {

// The parts of a D4PG workload that tests vary.
struct D4pgOptions {
  agents::d4pg::D4pgConfig agent;
  agents::LearningSpec spec;
  LearnerConfig learner;
  uint64_t seed = 1;
};

inline AgentWorkload MakeWorkload(const D4pgOptions& options,
                                  replay::BatchSource* source) {
  return {agents::d4pg::MakeAgent(options.agent),
          {.learner = options.learner,
           .seed = options.seed,
           .replicator = replicator::MakeReplicator(options.learner.replication,
                                                    options.seed),
           .spec = options.spec,
           .source = source}};
}

}  // namespace replicant::learner
