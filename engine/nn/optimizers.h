#pragma once

#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/nn/replica_context.h"

// Optimizers with their variables, moving averages, step counters and
// schedules.
namespace replicant::nn {

using graph::CallSite;
using graph::Graph;
using graph::Output;
using graph::VariableId;

// Number of updates so far: a scalar i64 variable that starts at 0.
struct StepCounter {
  Output value;    // before this run
  Output advance;  // the update that adds one
};
StepCounter AddStepCounter(Graph& graph, const std::string& name = "step",
                           CallSite site = CallSite::Here());

struct ClipOptions {
  // Gradients are scaled down to this global norm; 0 means no limit.
  double max_global_norm = 0.0;
};

// Optimizers add the update to the graph of `replica`. Gradients are the means
// over all replicas (ReplicaContext::MeanGradients()); the learning rate is
// multiplied by the replica's learning_rate_scale().

// graph::AdamUpdate of all `parameters` in one node. The moments are variables
// "<name>/m/<parameter>" and "<name>/v/<parameter>", not trained. Throws
// InvalidArgument unless there is one gradient per parameter.
Output Adam(ReplicaContext& replica, const std::string& name,
            const std::vector<VariableId>& parameters,
            const std::vector<Output>& gradients, Output learning_rate,
            Output step, const graph::AdamUpdateOptions& options = {},
            const ClipOptions& clip = {}, CallSite site = CallSite::Here());

// graph::SgdUpdate of all `parameters` in one node. The momenta are variables
// "<name>/momentum/<parameter>"; there are none if the momentum is 0.
Output Sgd(ReplicaContext& replica, const std::string& name,
           const std::vector<VariableId>& parameters,
           const std::vector<Output>& gradients, Output learning_rate,
           const graph::SgdUpdateOptions& options = {},
           const ClipOptions& clip = {}, CallSite site = CallSite::Here());

// The scope of the variables of AverageVariables().
inline constexpr const char* kAverageScope = "average";

// Moving averages of variables, for evaluations. The average of a variable is
// the variable "average/<its name>". With t for the scalar i64
// `step`, the number of updates so far, the returned updates are
//
//   rate = max(1 - decay, 1 / (t + 1))
//   average = (1 - rate) * average + rate * variable
//
// the mean of all values until 1 / (1 - decay) updates, exponential from then
// on. They take the newest version of each variable; those of variables that
// are not trained, which replicas may each have for themselves, are an update
// of their own.
std::vector<Output> AverageVariables(Graph& graph,
                                     const std::vector<VariableId>& variables,
                                     Output step, double decay,
                                     CallSite site = CallSite::Here());

// Schedules: numbers that depend on `step` (scalar i64), as [] of `dtype`, f32
// or f64, in the graph. In f32, steps beyond 2^24 are rounded first.

// Changes linearly from `first` at step `begin` to `last` at step `end`, and is
// constant before and after. Throws InvalidArgument unless begin < end.
Output LinearSchedule(Output step, double first, double last, int64_t begin,
                      int64_t end, DType dtype = DType::kF32,
                      CallSite site = CallSite::Here());
// first * (1 + cos(pi * min(step, length) / length)) / 2. Throws
// InvalidArgument unless length >= 1.
Output CosineSchedule(Output step, double first, int64_t length,
                      DType dtype = DType::kF32,
                      CallSite site = CallSite::Here());
// values[i] from step boundaries[i-1] on. Throws InvalidArgument unless
// boundaries ascend and there is one more value than boundaries.
Output PiecewiseConstantSchedule(Output step,
                                 const std::vector<int64_t>& boundaries,
                                 const std::vector<double>& values,
                                 DType dtype = DType::kF32,
                                 CallSite site = CallSite::Here());

}  // namespace replicant::nn
