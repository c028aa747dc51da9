#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/kernels/backend.h"
#include "core/replicator/replication_config.h"
#include "core/replicator/replicator.h"

namespace replicant::replicator {

// The arguments of Replicator::Create(); they are valid during the call.
struct StrategyRequest {
  const ReplicationConfig& config;
  uint64_t seed;
  const ProcessPlace& place;
  const kernels::BackendFactory& make_backend;
};

// One strategy: its name, its traits, and how its replicators are made.
struct StrategyDef {
  Strategy strategy = Strategy::kSingle;
  // The value of `replication.strategy`.
  std::string_view name;

  // Only one replica makes the steps.
  bool has_one_replica = false;
  // mpirun starts the processes, with `replicas_per_process` each.
  bool uses_mpi = false;
  // Servers hold the variables; further processes are workers.
  bool has_servers = false;
  // Replicas make every step together, so that `accumulation_steps` and
  // `logical_devices` apply.
  bool is_synchronous = true;

  // Number of replicas that share a batch.
  int (*replicas_of_group)(const ReplicationConfig& config) = nullptr;
  // Throws what Replicator::Create() throws.
  std::unique_ptr<Replicator> (*make)(const StrategyRequest& request) = nullptr;
};

// Every strategy, in the order in which messages and manuals name them. A new
// strategy is one row here and one value of Strategy.
const std::vector<StrategyDef>& Strategies();

// The row of a strategy; there is one for each (checked).
const StrategyDef& DefOf(Strategy strategy);

}  // namespace replicant::replicator
