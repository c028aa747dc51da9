#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "replicator/calls/agreement.h"
#include "replicator/calls/collective_ops.h"
#include "replicator/calls/lowering.h"
#include "replicator/calls/partition.h"
#include "replicator/input.h"
#include "replicator/replicator.h"
#include "replicator/steps/gradient_sums.h"
#include "replicator/steps/shared_updates.h"

// One replica's part of a step, from the step function to the program with
// calls between the replicas.
namespace replicant::replicator {

// The number format of gradients under `config`.
inline GradientFormat GradientFormatOf(const ReplicationConfig& config) {
  return {.dtype = config.gradient_format, .top_k = config.top_k};
}

struct BuildOptions {
  uint64_t seed = 0;
  LoweringOptions lowering;
  // The number format of gradients between replicas.
  GradientFormat gradient_format;
  Accumulation accumulation;
  nn::ReplicaOptions replica;
  // The rank among the replicas of this process, which share one copy of the
  // trained variables.
  ReplicaRank sharing;
  // Replaces the outputs of the step function, except for an earlier batch. The
  // original values come first, unchanged.
  std::function<StepOutputs(Graph&, StepOutputs)> take_over = {};
};

// A replica's step as a program with placeholders
// (replicator/calls/collective_ops.h).
struct ReplicaProgram {
  graph::Program program;
  std::vector<std::string> value_names;
  // With accumulation: the variables that hold the sums, by name. Empty for a
  // step that does not accumulate (GradientSums::AreNeeded()).
  std::set<std::string> sums;
  // ReplicaContext::divides_work()
  bool divides_work = false;
};

// Calls `step_fn` on a new graph; variables that each replica would update
// alone get an agreement. Throws as BuildReplica(). `options.lowering` and
// `options.sharing` are ignored.
ReplicaProgram BuildReplicaProgram(ReplicaRank rank,
                                   const std::vector<InputSpec>& specs,
                                   const StepFn& step_fn,
                                   const BuildOptions& options);

struct BuiltReplica {
  PartitionedProgram program;
  std::vector<std::string> value_names;
  Signature signature;
  // Set if BuildOptions::sharing has several replicas.
  SharedVariables variables;
  // As ReplicaProgram::sums.
  std::set<std::string> sums;
};

// Prepares the program of one replica:
// 1. BuildReplicaProgram(),
// 2. updates of shared variables are divided among the replicas,
// 3. calls take the place of primitives,
// 4. the program is divided among the logical devices.
//
// Throws what `step_fn` throws, and InvalidArgument for a trained variable that
// the replicas would update differently, for a variable that has no agreement,
// and for a step that cannot be accumulated.
BuiltReplica BuildReplica(ReplicaRank rank, const std::vector<InputSpec>& specs,
                          const StepFn& step_fn, const BuildOptions& options);

}  // namespace replicant::replicator
