#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/graph/graph.h"

// Updates of many variables in one node, so that a backend can go through all
// parameters at once. Variables are floating; a variable's slots and gradient
// have its dtype and shape. Scalars are f32[]. Each function returns the node's
// first output, for PlanSpec::updates, and throws ShapeError at `site` for
// types that do not fit. No gradient: state is not differentiated through.
namespace replicant::graph {

struct SgdUpdateOptions {
  double momentum = 0.0;
  bool nesterov = false;
  // Added to the gradient as weight_decay * parameter.
  double weight_decay = 0.0;
};

// Stochastic gradient descent, as PyTorch's SGD without dampening:
//
//   d = gradient_scale * g + weight_decay * p
//   u = momentum * u + d
//   p = p - learning_rate * (nesterov ? d + momentum * u : u)
//
// `momenta` (u, first values 0) is empty where momentum is 0.
Output SgdUpdate(const std::vector<VariableId>& parameters,
                 const std::vector<VariableId>& momenta,
                 const std::vector<Output>& gradients, Output learning_rate,
                 Output gradient_scale, const SgdUpdateOptions& options = {},
                 CallSite site = CallSite::Here());

struct AdamUpdateOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  // Decoupled (arXiv:1711.05101): p is first multiplied by
  // 1 - learning_rate * weight_decay.
  double weight_decay = 0.0;
};

// Adam (arXiv:1412.6980, algorithm 1), with g = gradient_scale * gradient and
// t = step + 1:
//
//   m = beta1 * m + (1 - beta1) * g
//   v = beta2 * v + (1 - beta2) * g^2
//   p = p - learning_rate * (m / (1 - beta1^t))
//           / (sqrt(v / (1 - beta2^t)) + epsilon)
//
// `step` is a scalar i64: the number of updates so far.
struct AdamVariables {
  std::vector<VariableId> parameters;
  std::vector<VariableId> first_moments;   // m, first values 0
  std::vector<VariableId> second_moments;  // v, first values 0
};
Output AdamUpdate(Graph& graph, const AdamVariables& variables,
                  const std::vector<Output>& gradients, Output learning_rate,
                  Output gradient_scale, Output step,
                  const AdamUpdateOptions& options = {},
                  CallSite site = CallSite::Here());

// target = (1 - rate) * target + rate * source, for every pair. A rate of 1 is
// an exact copy, a rate of 0 leaves the target's bits.
Output MovingAverageUpdate(const std::vector<VariableId>& targets,
                           const std::vector<Output>& sources, Output rate,
                           CallSite site = CallSite::Here());

// MovingAverageUpdate with rate 1 where step is a multiple of `period`, else
// 0. Throws InvalidArgument unless period >= 1.
Output PeriodicCopyUpdate(const std::vector<VariableId>& targets,
                          const std::vector<Output>& sources, Output step,
                          int64_t period, CallSite site = CallSite::Here());

// Which part of an update of this file a node makes, where nodes of several
// plans make it together on the same variables: the elements of all variables
// are cut into `count` parts, by the backend, and it writes those of part
// `index`. Such a node may have several gradients for each parameter, one group
// of inputs after the other; what it applies is their sum, in this order,
// rounded after each of them, times the factor.
struct UpdatePart {
  int64_t index = 0;
  int64_t count = 1;
  int64_t num_gradients = 1;
  double gradient_factor = 1.0;  // where there are several
};
void SetUpdatePart(const UpdatePart& part, Attributes* attributes);
UpdatePart UpdatePartOf(const Attributes& attributes);

// Whether inputs and updates of a node come in groups, as those of this file's
// updates do.
bool IsGroupedUpdate(const Node& node);
// The first input of such a node that is a gradient; nothing for an average.
std::optional<size_t> FirstGradient(const Node& node);

// sqrt of the sum of squares of all elements of all tensors: f32[].
Output GlobalNorm(const std::vector<Output>& xs,
                  CallSite site = CallSite::Here());

// The factor that brings the global norm down to max_norm, as PyTorch's
// clip_grad_norm_: min(1, max_norm / (GlobalNorm(xs) + 1e-6)), f32[]. Give it
// to an update as gradient_scale. Throws InvalidArgument unless max_norm > 0.
Output GlobalNormClipScale(const std::vector<Output>& xs, double max_norm,
                           CallSite site = CallSite::Here());

// Each row of x [B, D] brought down to norm max_norm: x * max_norm /
// max(norm, max_norm). Elementwise ops and a reduction, so differentiable where
// no row is zero. Throws InvalidArgument unless max_norm > 0.
Output ClipRowsByNorm(Output x, double max_norm,
                      CallSite site = CallSite::Here());

}  // namespace replicant::graph
