#include "replicator/strategy.h"

#include <fmt/format.h>

#include "base/error.h"
#include "replicator/parameter_server/parameter_server_replicator.h"
#include "replicator/pjrt/pjrt_replicator.h"
#include "replicator/replication_config.h"
#include "replicator/strategies/hogwild_replicator.h"
#include "replicator/strategies/single_replicator.h"
#include "replicator/strategies/synchronous_replicator.h"

namespace replicant::replicator {
namespace {

int AllReplicas(const ReplicationConfig& config) { return config.replicas; }
int OneReplica(const ReplicationConfig& /*config*/) { return 1; }
int ReplicasOfProcessGroup(const ReplicationConfig& config) {
  return config.replicas_per_group;
}

std::unique_ptr<Replicator> MakeSynchronous(const StrategyRequest& request) {
  return MakeSynchronousReplicator(request.config, request.seed,
                                   request.make_backend, request.place.index);
}

std::unique_ptr<Replicator> MakePjrt(const StrategyRequest& request) {
  return MakePjrtReplicator(request.config, request.seed, request.make_backend);
}

std::unique_ptr<Replicator> MakeInGraph(const StrategyRequest& request) {
  return request.config.has_pjrt() ? MakePjrt(request)
                                   : MakeSynchronous(request);
}

std::unique_ptr<Replicator> MakeSingle(const StrategyRequest& request) {
  const ReplicationConfig& config = request.config;
  if (config.has_pjrt()) return MakePjrt(request);
  if (config.logical_devices == 1) {
    return MakeSingleReplicator(config, request.seed, request.make_backend);
  }
  // in_graph divides a replica among devices
  ReplicationConfig of_one = config;
  of_one.strategy = &Strategy::kInGraph;
  return MakeSynchronousReplicator(of_one, request.seed, request.make_backend);
}

std::unique_ptr<Replicator> MakeHogwild(const StrategyRequest& request) {
  return MakeHogwildReplicator(request.config, request.seed,
                               request.make_backend);
}

std::unique_ptr<Replicator> MakeServerOrWorker(const StrategyRequest& request) {
  const ProcessPlace& place = request.place;
  return place.is_server
             ? MakeParameterServer(request.config, request.seed, place.index,
                                   place.folder, request.make_backend)
             : MakeParameterWorker(request.config, request.seed, place.index,
                                   request.make_backend);
}

}  // namespace

constexpr Strategy Strategy::kSingle{.name = "single",
                                     .doc = "one replica",
                                     .has_one_replica = true,
                                     .has_pjrt = true,
                                     .replicas_of_group = &AllReplicas,
                                     .make = &MakeSingle};

constexpr Strategy Strategy::kInGraph{
    .name = "in_graph",
    .doc = "several replicas in one process, which make every step together",
    .has_pjrt = true,
    .replicas_of_group = &AllReplicas,
    .make = &MakeInGraph};

constexpr Strategy Strategy::kBetweenGraph{
    .name = "between_graph",
    .doc = "the same in several processes",
    .has_processes = true,
    .replicas_of_group = &AllReplicas,
    .make = &MakeSynchronous};

constexpr Strategy Strategy::kHogwild{
    .name = "hogwild",
    .doc =
        "several replicas in one process, each with its own batches, which "
        "update the same variables without locks",
    .is_synchronous = false,
    .replicas_of_group = &OneReplica,
    .make = &MakeHogwild};

constexpr Strategy Strategy::kParameterServer{
    .name = "parameter_server",
    .doc =
        "groups of replicas, each in one process or in several; servers hold "
        "and update the variables",
    .has_servers = true,
    .is_synchronous = false,
    .replicas_of_group = &ReplicasOfProcessGroup,
    .make = &MakeServerOrWorker};

StrategyRegistry StrategyRegistry::BuiltIn() {
  StrategyRegistry registry;
  for (const Strategy* strategy :
       {&Strategy::kSingle, &Strategy::kInGraph, &Strategy::kBetweenGraph,
        &Strategy::kHogwild, &Strategy::kParameterServer}) {
    registry.Add(*strategy);
  }
  return registry;
}

void StrategyRegistry::Add(const Strategy& strategy) {
  if (strategy.replicas_of_group == nullptr || strategy.make == nullptr) {
    throw InvalidArgument(
        fmt::format("StrategyRegistry: strategy '{}' needs replicas_of_group "
                    "and make",
                    strategy.name));
  }
  for (const Strategy* known : strategies_) {
    if (known->name == strategy.name) {
      throw InvalidArgument(fmt::format(
          "StrategyRegistry: there is a strategy '{}' already", strategy.name));
    }
  }
  strategies_.push_back(&strategy);
}

}  // namespace replicant::replicator
