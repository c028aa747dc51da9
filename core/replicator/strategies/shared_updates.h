#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/graph/passes/passes.h"
#include "core/kernels/backend.h"
#include "core/replicator/graph/call_waits.h"
#include "core/replicator/graph/collective_ops.h"

// How replicas of one process train one copy of the variables: an update of
// what they share is made by all of them together, each of whom writes its part
// of the elements. If there are no replicas elsewhere an optimizer takes the
// gradients straight from their memory and sums them on the way, so that every
// number is read once and nothing is packed, summed and spread before.
//
// Nobody writes a variable before all are done with its old value, and nobody
// goes on before its new value is whole: replicas meet before such an update
// and behind it.
namespace replicant::replicator {

// Which variables the replicas share, by name. Others are a replica's own.
struct SharedVariables {
  // What is trained, and what updates bring together with it: slots.
  std::set<std::string> shared;
  // What a program updates otherwise.
  std::set<std::string> own;
};

// Puts the replica's part of each update that `place`, the replicas of this
// process, make together in the place of the whole. What is trained is the
// replica's own only where the program also updates it with what the replica
// alone knows. `program` has placeholders (collective_ops.h) between
// `num_replicas`; where these are all of this process an optimizer needs none
// of its gradients' means if they are for it alone, and made of f32 or f64 as
// they are.
struct SharedProgram {
  graph::Program program;
  SharedVariables variables;
};
SharedProgram ShareUpdates(const graph::Program& program, ReplicaPlace place,
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

  // Null for a node that is no part of such an update. This object outlives the
  // kernel, which adds to `waits`.
  std::unique_ptr<kernels::Kernel> MakeKernel(
      size_t replica, size_t device, kernels::Backend& backend,
      const graph::Graph& graph, const graph::Node& node,
      const std::shared_ptr<CallWaits>& waits);

  // Shows the kernels each other's gradients. Throws InvalidArgument if the
  // replicas' plans do not have them in one order.
  void Connect();
  // Ends all waiting, now and later.
  void Abort(const std::string& reason);

 private:
  class UpdateKernel;
  // One logical device of a replica.
  struct Place {
    std::unique_ptr<comm::Communicator> communicator;
    // In the order of the plan.
    std::vector<UpdateKernel*> kernels;
  };

  // By device and replica.
  std::vector<std::vector<Place>> places_;
};

}  // namespace replicant::replicator
