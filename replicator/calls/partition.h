#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/graph/passes/passes.h"

namespace replicant::replicator {

// A program divided into one program per logical device, each with the nodes
// placed on that device (graph::Node::device).
//
// - Inputs of the graph are on the first device.
// - A variable is on the device that first reads it, with its slots (momenta)
//   and its updates. An update of variables on several devices becomes one
//   update per device.
// - A value that another device needs is sent and received (transfers.h), once
//   for each device that needs it; constants are copied.
struct PartitionedProgram {
  std::vector<graph::Program> devices;
  // The place of each output of the whole program: a device's output.
  struct Place {
    size_t device = 0;
    size_t index = 0;
  };
  std::vector<Place> outputs;
  int64_t num_channels = 0;
};

PartitionedProgram Partition(graph::Program program, int num_devices);

}  // namespace replicant::replicator
