#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/kernels/backend.h"

namespace replicant::replicator {

class Replicator;
struct ProcessRank;
struct ReplicationConfig;

// The arguments of MakeReplicator(); they are valid during the call.
struct StrategyRequest {
  const ReplicationConfig& config;
  uint64_t seed;
  const ProcessRank& rank;
  const kernels::BackendFactory& make_backend;
};

// A way for replicas to work together: its name and its traits. A strategy is a
// constant, known by its address.
struct Strategy {
  // The value of `replication.strategy`, and its part of the manual.
  std::string_view name;
  std::string_view doc;

  // Only one replica makes the steps.
  bool has_one_replica = false;
  // Several processes of `replicas_per_process` each make every step together.
  bool has_processes = false;
  // Servers hold the variables; further processes are workers.
  bool has_servers = false;
  // Replicas make every step together, so that `logical_devices` applies.
  bool is_synchronous = true;
  // Replicas may be devices of one PJRT client (replicator/pjrt).
  bool has_pjrt = false;

  // Number of replicas that share a batch.
  int (*replicas_of_group)(const ReplicationConfig& config) = nullptr;
  // Makes the replicators of a program's own strategy; throws what
  // MakeReplicator() throws. Null for the constants below.
  std::unique_ptr<Replicator> (*make)(const StrategyRequest& request) = nullptr;

  static const Strategy kSingle;
  static const Strategy kInGraph;
  static const Strategy kBetweenGraph;
  static const Strategy kHogwild;
  static const Strategy kParameterServer;
};

// The strategies of a program, by name.
//
// Thread-safety: const methods may run concurrently.
class StrategyRegistry {
 public:
  // The five strategies above.
  static StrategyRegistry BuiltIn();

  // Throws InvalidArgument if the name is taken or a function is missing.
  // `strategy` must outlive the registry and every configuration read with it.
  void Add(const Strategy& strategy);

  // In the order of Add().
  const std::vector<const Strategy*>& strategies() const { return strategies_; }

 private:
  std::vector<const Strategy*> strategies_;
};

}  // namespace replicant::replicator
