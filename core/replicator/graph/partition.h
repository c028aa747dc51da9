#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/graph/passes/passes.h"

namespace replicant::replicator {

// A program in as many as there are logical devices, each with the nodes that
// were placed there (graph::Node::device).
//
// - Inputs of the graph are the first device's.
// - Variables are where they are first read, their slots (momenta) beside them,
//   and what updates a variable is where it is; an update of variables of
//   several devices becomes one for each.
// - What one device computes and another needs is sent and received
//   (transfers.h), once for each device that needs it; constants are copied.
struct PartitionedProgram {
  std::vector<graph::Program> devices;
  // Where the outputs of the whole are: which output of which device.
  struct Place {
    size_t device = 0;
    size_t index = 0;
  };
  std::vector<Place> outputs;
  int64_t num_channels = 0;
};

PartitionedProgram Partition(graph::Program program, int num_devices);

}  // namespace replicant::replicator
