#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/graph/graph.h"

namespace replicant::nn {

using graph::Output;

// Collects the rows of all replicas, as ReplicaContext::AllGather: [...] ->
// [R, ...] for R replicas.
using GatherFn = std::function<Output(Output)>;

// The calls between replicas that one update of a model needs. A model's
// builder takes them, so that it knows nothing of the replicator. The default
// is a single replica, which needs no call. A null function stands for the
// identity.
struct ReplicaHooks {
  // Returns the mean over replicas of each gradient. All gradients of an
  // optimizer come in one call.
  std::function<std::vector<Output>(const std::vector<Output>&)>
      mean_gradients = {};
  // Returns the maximum over replicas of a scalar.
  std::function<Output(Output)> max = {};
  // Gathers a tensor of every replica.
  GatherFn gather = {};
  // Number of logical devices that a network may divide its layers among.
  int num_logical_devices = 1;
  // Global index of this replica's first row. It keys random numbers of rows.
  int64_t first_row = 0;
  // Added to first_row in every run (graph::RandomOptions); an invalid Output
  // stands for 0.
  Output row_offset = {};
};

// Opens the scope of the logical device that part `index` of `count` parts of a
// network is on, if neighbouring parts are divided evenly among the devices.
[[nodiscard]] inline graph::Graph::DeviceScope DeviceOfPart(graph::Graph& graph,
                                                            size_t index,
                                                            size_t count,
                                                            int num_devices) {
  return {graph, static_cast<int32_t>(index * static_cast<size_t>(num_devices) /
                                      count)};
}

}  // namespace replicant::nn
