#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/graph/graph.h"

// Updates of many variables in one node, so that a backend handles all
// parameters in one pass. Variables are floating; a variable's slots and
// gradient have its dtype and shape. Scalars have shape [] and dtype
// ScalarDType(). Each function returns the node's first output, for
// PlanSpec::updates. It throws ShapeError at `site` for types that do not fit.
// Updates have no gradient: state is not differentiated through.
namespace replicant::graph {

// The type of the scalars of an update of variables of type `variables`: f64
// for f64, so that a rate is not rounded, else f32.
DType ScalarDType(DType variables);

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

// The share of an update that one node computes. Nodes of several plans can
// share an update of the same variables: the backend cuts the elements of all
// variables into `count` parts, and the node writes part `index`. Such a node
// may have several gradients per parameter, as consecutive groups of inputs. It
// applies their sum, added in this order and rounded after each addition, times
// `gradient_factor`.
struct UpdatePart {
  int64_t index = 0;
  int64_t count = 1;
  int64_t num_gradients = 1;
  double gradient_factor = 1.0;  // applies if num_gradients > 1
};
void SetUpdatePart(const UpdatePart& part, Attributes* attributes);
UpdatePart UpdatePartOf(const Attributes& attributes);

// Whether `node` is an update of this file, with its inputs in groups.
bool IsGroupedUpdate(const Node& node);
// Index of such a node's first gradient; std::nullopt for a moving average.
std::optional<size_t> FirstGradient(const Node& node);

// sqrt of the sum of squares of all elements of all tensors, which have one
// dtype: [] of ScalarDType().
Output GlobalNorm(const std::vector<Output>& xs,
                  CallSite site = CallSite::Here());

// The factor that clips the global norm to max_norm, as PyTorch's
// clip_grad_norm_: min(1, max_norm / (GlobalNorm(xs) + 1e-6)), [] of
// ScalarDType(). Updates take it as gradient_scale. Throws InvalidArgument
// unless max_norm > 0.
Output GlobalNormClipScale(const std::vector<Output>& xs, double max_norm,
                           CallSite site = CallSite::Here());

// Clips each row of x [B, D] to norm max_norm: x * max_norm /
// max(norm, max_norm). Composed of elementwise ops and a reduction;
// differentiable where no row is zero. Throws InvalidArgument unless
// max_norm > 0.
Output ClipRowsByNorm(Output x, double max_norm,
                      CallSite site = CallSite::Here());

}  // namespace replicant::graph
