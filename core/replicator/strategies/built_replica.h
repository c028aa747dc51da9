#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/replicator/graph/agreement.h"
#include "core/replicator/graph/collective_ops.h"
#include "core/replicator/graph/lowering.h"
#include "core/replicator/graph/partition.h"
#include "core/replicator/input.h"
#include "core/replicator/replicator.h"
#include "core/replicator/strategies/shared_updates.h"

// One replica's part of a step, from the step function to the program with
// calls between the replicas.
namespace replicant::replicator {

// Which of the batches of an update a program is for. An update learns from one
// batch, or, with accumulation, from several: all but the last add their
// gradients to sums that every replica keeps, in variables, and change nothing
// else; the last one adds its own, and makes the update.
enum class BatchRole { kOnly, kEarlier, kLast };

struct BuildOptions {
  uint64_t seed = 0;
  LoweringOptions lowering;
  // The number format of gradients between replicas.
  Wire wire;
  // Batches of an update.
  int accumulation_steps = 1;
  int logical_devices = 1;
  // The place among the replicas that share one copy of the trained variables:
  // those of this process.
  ReplicaPlace sharing;
  // The number of the step, which names its sums.
  int step_number = 0;
  BatchRole role = BatchRole::kOnly;
};

// Inputs of an accumulating program besides the batch, filled before each run.
// A program has each of them only if some node reads it.
inline constexpr const char* kIsFirstBatch = "accumulation/is_first";  // bool[]
inline constexpr const char* kBatchNumber = "accumulation/batch";      // i64[]

struct BuiltReplica {
  PartitionedProgram program;
  std::vector<std::string> value_names;
  Signature signature;
  // With BuildOptions::sharing, if these are several.
  SharedVariables variables;
  // With accumulation: the variables that hold the sums, by name.
  std::set<std::string> sums;
};

// Calls `step_fn` on a new graph and prepares the program of one replica:
// 1. variables that each replica would update alone get an agreement,
// 2. updates of shared variables are divided among the replicas,
// 3. calls take the place of primitives,
// 4. the program is divided among the logical devices.
//
// Throws what `step_fn` throws, and InvalidArgument for a trained variable that
// the replicas would update differently, for a variable that has no agreement,
// and for a step that cannot be accumulated.
BuiltReplica BuildReplica(ReplicaPlace place,
                          const std::vector<InputSpec>& specs,
                          const StepFn& step_fn, const BuildOptions& options);

}  // namespace replicant::replicator
