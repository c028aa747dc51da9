#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/export/stablehlo.h"
#include "replicator/replicator.h"

// Steps as StableHLO modules, for export.
namespace replicant::replicator {

// A step of a workload, for all its replicas.
struct StableHloStep {
  // runtime::CompileOptions::name, perhaps with "_earlier".
  std::string name;
  // Its `draws` are those of replica 0.
  exporting::StableHloModule module;
  // By replica: StableHloModule::draws.
  std::vector<graph::Program> draws;
  // Whether its updates learn from several batches.
  bool accumulates = false;
  // All variables that the step declares, with their initializers: what a
  // VariableStore is to hold.
  std::vector<graph::VariableSpec> variables;
};

// A replicator that makes modules of the steps of a workload and runs none of
// them (replicator/strategies/stablehlo_replicator.h).
struct ModuleReplicator {
  std::unique_ptr<Replicator> replicator;
  // The modules that it has built so far. Owned by the replicator.
  const std::vector<StableHloStep>* steps = nullptr;
};

// Throws ConfigError for a configuration whose steps have no module.
ModuleReplicator MakeModuleReplicator(const ReplicationConfig& config,
                                      uint64_t seed);

}  // namespace replicant::replicator
