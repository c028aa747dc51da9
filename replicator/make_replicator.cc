#include "replicator/make_replicator.h"

#include "base/check.h"
#include "base/error.h"
#include "replicator/parameter_server/parameter_server_replicator.h"
#include "replicator/pjrt/pjrt_replicator.h"
#include "replicator/strategies/hogwild_replicator.h"
#include "replicator/strategies/single_replicator.h"
#include "replicator/strategies/synchronous_replicator.h"
#include "replicator/strategy.h"

namespace replicant::replicator {
namespace {

std::unique_ptr<Replicator> MakeSingle(const StrategyRequest& request) {
  const ReplicationConfig& config = request.config;
  if (config.logical_devices == 1) {
    return MakeSingleReplicator(config, request.seed, request.make_backend);
  }
  // in_graph divides a replica among devices
  ReplicationConfig of_one = config;
  of_one.strategy = &Strategy::kInGraph;
  return std::make_unique<SynchronousReplicator>(of_one, request.seed,
                                                 request.make_backend);
}

std::unique_ptr<Replicator> MakeServerOrWorker(const StrategyRequest& request) {
  const ProcessRank& rank = request.rank;
  return rank.is_server
             ? MakeParameterServer(request.config, request.seed, rank.index,
                                   rank.folder, request.make_backend)
             : MakeParameterWorker(request.config, request.seed, rank,
                                   request.make_backend);
}

std::unique_ptr<Replicator> MakeBuiltIn(const StrategyRequest& request) {
  const ReplicationConfig& config = request.config;
  const Strategy* const strategy = config.strategy;
  if (strategy->has_pjrt && config.has_pjrt()) {
    return MakePjrtReplicator(config, request.seed, request.make_backend);
  }
  if (strategy == &Strategy::kSingle) return MakeSingle(request);
  if (strategy == &Strategy::kInGraph || strategy == &Strategy::kBetweenGraph) {
    return std::make_unique<SynchronousReplicator>(
        config, request.seed, request.make_backend, request.rank.index);
  }
  if (strategy == &Strategy::kHogwild) {
    return MakeHogwildReplicator(config, request.seed, request.make_backend);
  }
  if (strategy == &Strategy::kParameterServer) {
    return MakeServerOrWorker(request);
  }
  REPLICANT_CHECK(false, "strategy {} has no make", strategy->name);
}

}  // namespace

std::unique_ptr<Replicator> MakeReplicator(
    const ReplicationConfig& config, uint64_t seed, const ProcessRank& rank,
    const kernels::BackendFactory& make_backend) {
  const Strategy& strategy = *config.strategy;
  const bool has_place =
      strategy.has_servers ||
      (!rank.is_server && (rank.index == 0 || config.num_workers() > 1));
  if (!has_place) {
    throw ConfigError(
        "replication.strategy: servers are for parameter_server, further "
        "workers for parameter_server and for between_graph with communicator "
        "tcp");
  }
  const StrategyRequest request{.config = config,
                                .seed = seed,
                                .rank = rank,
                                .make_backend = make_backend};
  return strategy.make == nullptr ? MakeBuiltIn(request)
                                  : strategy.make(request);
}

}  // namespace replicant::replicator
