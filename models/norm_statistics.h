#pragma once

#include "base/config/reader.h"
#include "engine/nn/layers.h"
#include "engine/nn/replica_context.h"

namespace replicant::models {

// The rows over which a batch norm computes its statistics.
enum class NormStatistics {
  kSync,        // statistics of all replicas
  kPerReplica,  // the replica's own
};

// Reads key `batch_norm_statistics` of an image model.
inline void ReadNormStatistics(config::Reader& reader, NormStatistics* value) {
  reader.Field("batch_norm_statistics", value,
               {{"sync", NormStatistics::kSync},
                {"per_replica", NormStatistics::kPerReplica}},
               "statistics of batch norm on several replicas. sync: over the "
               "rows of all replicas, so that N replicas learn what one "
               "would; per_replica: over each replica's own rows, without "
               "waiting for the others");
}

// Returns the gather function of a batch norm with these statistics; null for
// kPerReplica and for one replica. `replica` outlives it.
inline nn::GatherFn GatherFor(nn::ReplicaContext& replica,
                              NormStatistics statistics) {
  if (statistics == NormStatistics::kPerReplica ||
      replica.num_replicas() == 1) {
    return {};
  }
  return [&replica](graph::Output x) { return replica.AllGather(x); };
}

}  // namespace replicant::models
