#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "engine/kernels/backend.h"
#include "replicator/calls/device_communicator.h"

namespace replicant::replicator {

// Makes the kernels of the calls (call_ops.h) of one replica's plan on the
// device. Kernels pack and unpack buckets. The communicator's stream reduces
// them while the plan's goes on, and the plan's stream waits for a result where
// it is used. The host never waits.
class DeviceCallKernels {
 public:
  // Both outlive the kernels.
  DeviceCallKernels(DeviceCommunicator* communicator, kernels::Backend* backend)
      : communicator_(*communicator), backend_(*backend) {}

  // Null for a node that is not a call, and for a bucket with top_k, which the
  // host makes. Throws DeviceError for a dtype that no device reduces.
  std::unique_ptr<kernels::Kernel> Make(const graph::Graph& graph,
                                        const graph::Node& node);

  // A bucket that is packed by one kernel and unpacked by another.
  struct Bucket {
    std::byte* packed = nullptr;
    std::unique_ptr<kernels::Event> done;
  };

 private:
  DeviceCommunicator& communicator_;
  kernels::Backend& backend_;
  std::map<int64_t, std::shared_ptr<Bucket>> buckets_;
};

}  // namespace replicant::replicator
