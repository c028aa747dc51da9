#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/graph/passes/passes.h"
#include "engine/kernels/backend.h"
#include "replicator/calls/call_waits.h"
#include "replicator/calls/collective_ops.h"
#include "replicator/comm/communicator.h"
#include "replicator/comm/thread_group.h"

// Replicas of one process train one copy of the variables: they make each
// update of a shared variable together, and each replica writes its part of the
// elements. If no other process has replicas, the optimizer reads the gradients
// of all replicas directly and sums them as it goes, so that every number is
// read once and no reduction runs before the update.
//
// A barrier stands before such an update and after it: no replica writes a
// variable while another one still reads the old value, and no replica reads a
// value that is written in part.
namespace replicant::replicator {

// The variables that the replicas share, by name, and those that they do not.
struct SharedVariables {
  // Trained variables, and the slots of their updates.
  std::set<std::string> shared;
  // All other variables that the program updates.
  std::set<std::string> own;
};

// Replaces each update that the replicas of this process (`rank`) make
// together by this replica's part of it. A trained variable stays the replica's
// own only if the program also updates it from values that the replica alone
// knows. `program` has placeholders (collective_ops.h) between `num_replicas`.
// If all of these are in this process, an optimizer reads every replica's f32
// or f64 gradients instead of their mean or sum, unless that is rounded or used
// elsewhere.
struct SharedProgram {
  graph::Program program;
  SharedVariables variables;
};
SharedProgram ShareUpdates(const graph::Program& program, ReplicaRank rank,
                           int num_replicas);

// The updates of one compiled program that the replicas make together.
//
//   one plan for each replica and device, with kernels from MakeKernel()
//   updates.Connect();
//   ... run the plans, each on its own thread ...
//
// Thread-safety: MakeKernel() and kernels of different plans from any thread;
// Connect() while no plan runs or is made.
class SharedUpdates {
 public:
  SharedUpdates(size_t num_replicas, size_t num_devices,
                const comm::CommunicatorOptions& options);

  // Null for a node that is not part of such an update. This object outlives
  // the kernel, which adds to `waits`.
  std::unique_ptr<kernels::Kernel> MakeKernel(
      size_t replica, size_t device, kernels::Backend& backend,
      const graph::Graph& graph, const graph::Node& node,
      const std::shared_ptr<CallWaits>& waits);

  // Gives each kernel the gradients of the other replicas. Throws
  // InvalidArgument if the replicas' plans have their updates in different
  // orders.
  void Connect();
  // Ends every wait, now and later.
  void Abort(const std::string& reason);

 private:
  class UpdateKernel;
  // One logical device of all replicas.
  struct Device {
    std::unique_ptr<comm::ThreadGroup> replicas;
    // By replica, in the order of its plan.
    std::vector<std::vector<UpdateKernel*>> kernels;
  };

  std::vector<Device> devices_;
};

}  // namespace replicant::replicator
