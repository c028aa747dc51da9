#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "replicator/replicator.h"

namespace replicant::replicator {

// Hooks around the phases of a step, for a strategy made of synchronous groups
// (parameter_server). Every process of a group has the same ones.
struct PhaseHooks {
  // Takes what the phase's step function gives: BuildOptions::take_over.
  std::function<StepOutputs(size_t phase, Graph& graph, StepOutputs outputs)>
      take_over;
  // Called when all processes have the first batch of an update, before the
  // phase's first run. May write variables(), which then are all replicas'.
  // Returns whether the run goes on; false in one process ends it in all.
  std::function<bool(size_t phase)> begin;
  // Called after the phase's update.
  std::function<void(size_t phase)> end;
};

class SynchronousReplicator : public Replicator {
 public:
  virtual std::unique_ptr<Step> BuildWithHooks(
      Input& input, const std::vector<StepFn>& phases,
      const runtime::CompileOptions& options, const PhaseHooks& hooks) = 0;
};

// Strategies `in_graph` and `between_graph`: replicas that make every step
// together, in one process on groups of its processors, or some in each process
// over MPI or TCP.
//
// Each replica has a plan, a store and a communicator of its own. All stores
// begin with the same values and get the same updates, so that they stay equal
// bit by bit. Replicas of one process share one copy of the trained variables
// (replicator/steps/shared_updates.h) where their backend's memory is
// the host's; on another backend each replica has a copy. A variable that every
// replica updates with values of its own is made equal within the step, as its
// ReplicaAgreement says.
//
// A replica that fails ends the step of all.
//
// `process`: this one's number among those that meet over TCP. `group`: the
// number of this group of parameter_server. Each group draws random numbers of
// its own, the first one those of `single`.
std::unique_ptr<SynchronousReplicator> MakeSynchronousReplicator(
    const ReplicationConfig& config, uint64_t seed,
    const kernels::BackendFactory& make_backend, int process = 0,
    int group = 0);

}  // namespace replicant::replicator
