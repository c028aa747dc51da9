#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/graph/graph.h"
#include "core/nn/layers.h"

namespace replicant::nn {

// The calls between replicas that one update of a model needs. A model's
// builder takes them, so that it knows nothing of the replicator. The default
// is a single replica, which needs no call. A null function stands for the
// identity.
struct ReplicaHooks {
  // Returns the mean over replicas of each gradient. All gradients of an
  // optimizer come in one call.
  std::function<std::vector<graph::Output>(const std::vector<graph::Output>&)>
      mean_gradients = {};
  // Returns the maximum over replicas of a scalar.
  std::function<graph::Output(graph::Output)> max = {};
  // Returns the rows of all replicas: [B, ...] -> [R * B, ...].
  GatherFn gather = {};
  // Number of logical devices that a network may divide its layers among.
  int num_logical_devices = 1;
  // Global index of this replica's first row. It keys random numbers of rows.
  int64_t first_row = 0;
  // Added to first_row in every run (graph::RandomOptions); an invalid Output
  // stands for 0.
  graph::Output row_offset = {};
};

}  // namespace replicant::nn
