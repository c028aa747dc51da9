#pragma once

#include <functional>
#include <vector>

#include "core/config/reader.h"
#include "core/graph/graph.h"
#include "core/nn/layers.h"

namespace replicant::learner {

// Whose rows the statistics of a batch norm are of.
enum class NormStatistics { kSync, kPerReplica };

// Key `batch_norm_statistics` of an image model.
inline void ReadNormStatistics(config::Reader& reader, NormStatistics* value) {
  reader.Field("batch_norm_statistics", value,
               {{"sync", NormStatistics::kSync},
                {"per_replica", NormStatistics::kPerReplica}},
               "batch norm on several replicas: sync normalises by the rows of "
               "all, so that N replicas learn what one would; per_replica each "
               "by its own rows, without waiting for the others");
}

// What an update asks of the replicas that make it together; by default there
// is one.
struct AcrossReplicas {
  // Gradients as the optimizer takes them, of those of one replica.
  std::function<std::vector<graph::Output>(const std::vector<graph::Output>&)>
      mean_gradients;
  nn::GatherFn gather;
  // Among which a network may divide its layers.
  int num_logical_devices = 1;

  nn::GatherFn GatherFor(NormStatistics statistics) const {
    return statistics == NormStatistics::kSync ? gather : nn::GatherFn();
  }
};

}  // namespace replicant::learner
