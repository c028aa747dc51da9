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
  // As what gradients travel between replicas.
  DType wire = DType::kF32;
  // Batches of an update.
  int accumulation_steps = 1;
  int logical_devices = 1;
  // Among the replicas that make updates of what they train together, on one
  // copy: those of this process.
  ReplicaPlace sharing;
  // Of the step: names the sums.
  int step_number = 0;
  BatchRole role = BatchRole::kOnly;
};

// Inputs that an accumulating program has besides the batch, to be filled
// before each run, each of them only where something needs it.
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

// Calls `step_fn` on a graph of its own, has the replicas agree on variables
// that each would update on its own, has them make updates together if they
// share what they train, puts calls in the place of primitives and divides the
// program among the logical devices. Throws what `step_fn` throws, and
// InvalidArgument for a trained variable that every replica would make
// something else of, for one that cannot be agreed on, and for a step that
// cannot be accumulated.
BuiltReplica BuildReplica(ReplicaPlace place,
                          const std::vector<InputSpec>& specs,
                          const StepFn& step_fn, const BuildOptions& options);

}  // namespace replicant::replicator
