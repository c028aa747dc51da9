#include "core/replicator/strategy_table.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/replicator/parameter_server/parameter_server_replicator.h"
#include "core/replicator/strategies/hogwild_replicator.h"
#include "core/replicator/strategies/single_replicator.h"
#include "core/replicator/strategies/synchronous_replicator.h"

namespace replicant::replicator {
namespace {

int AllReplicas(const ReplicationConfig& config) { return config.replicas; }
int OneReplica(const ReplicationConfig& /*config*/) { return 1; }
int ReplicasOfProcessGroup(const ReplicationConfig& config) {
  return config.replicas_per_group;
}

std::unique_ptr<Replicator> MakeSynchronous(const StrategyRequest& request) {
  return MakeSynchronousReplicator(request.config, request.seed,
                                   request.make_backend);
}

std::unique_ptr<Replicator> MakeSingle(const StrategyRequest& request) {
  const ReplicationConfig& config = request.config;
  if (config.accumulation_steps == 1 && config.logical_devices == 1) {
    return MakeSingleReplicator(config, request.seed, request.make_backend);
  }
  // in_graph divides an update among batches and devices
  ReplicationConfig of_one = config;
  of_one.strategy = Strategy::kInGraph;
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

const std::vector<StrategyDef>& Strategies() {
  static const std::vector<StrategyDef> strategies = {
      {.strategy = Strategy::kSingle,
       .name = "single",
       .has_one_replica = true,
       .replicas_of_group = &AllReplicas,
       .make = &MakeSingle},
      {.strategy = Strategy::kInGraph,
       .name = "in_graph",
       .replicas_of_group = &AllReplicas,
       .make = &MakeSynchronous},
      {.strategy = Strategy::kBetweenGraph,
       .name = "between_graph",
       .uses_mpi = true,
       .replicas_of_group = &AllReplicas,
       .make = &MakeSynchronous},
      {.strategy = Strategy::kHogwild,
       .name = "hogwild",
       .is_synchronous = false,
       .replicas_of_group = &OneReplica,
       .make = &MakeHogwild},
      {.strategy = Strategy::kParameterServer,
       .name = "parameter_server",
       .has_servers = true,
       .is_synchronous = false,
       .replicas_of_group = &ReplicasOfProcessGroup,
       .make = &MakeServerOrWorker},
  };
  return strategies;
}

const StrategyDef& DefOf(Strategy strategy) {
  const auto found =
      std::ranges::find(Strategies(), strategy, &StrategyDef::strategy);
  REPLICANT_CHECK(found != Strategies().end(), "Strategy {}",
                  static_cast<int>(strategy));
  return *found;
}

}  // namespace replicant::replicator
