#include "replicator/replication_config.h"
#include "replicator/strategy.h"

namespace replicant::replicator {
namespace {

int AllReplicas(const ReplicationConfig& config) { return config.replicas; }
int OneReplica(const ReplicationConfig& /*config*/) { return 1; }
int ReplicasOfProcessGroup(const ReplicationConfig& config) {
  return config.replicas_per_group;
}

}  // namespace

constexpr Strategy Strategy::kSingle{.name = "single",
                                     .doc = "one replica",
                                     .has_one_replica = true,
                                     .has_pjrt = true,
                                     .replicas_of_group = &AllReplicas};

constexpr Strategy Strategy::kInGraph{
    .name = "in_graph",
    .doc = "several replicas in one process, which make every step together",
    .has_pjrt = true,
    .replicas_of_group = &AllReplicas};

constexpr Strategy Strategy::kBetweenGraph{
    .name = "between_graph",
    .doc = "the same in several processes",
    .has_processes = true,
    .replicas_of_group = &AllReplicas};

constexpr Strategy Strategy::kHogwild{
    .name = "hogwild",
    .doc =
        "several replicas in one process, each with its own batches, which "
        "update the same variables without locks",
    .is_synchronous = false,
    .replicas_of_group = &OneReplica};

constexpr Strategy Strategy::kParameterServer{
    .name = "parameter_server",
    .doc =
        "groups of replicas, each in one process or in several; servers hold "
        "and update the variables",
    .has_servers = true,
    .is_synchronous = false,
    .replicas_of_group = &ReplicasOfProcessGroup};

}  // namespace replicant::replicator
