#include "core/nn/optimizers.h"

#include <fmt/format.h>

#include <algorithm>
#include <numbers>

#include "core/base/error.h"
#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/state.h"

namespace replicant::nn {
namespace {

// One variable of zeros per parameter.
std::vector<VariableId> AddSlots(Graph& graph, const std::string& scope_name,
                                 const std::vector<VariableId>& parameters,
                                 CallSite site) {
  const Graph::Scope scope(graph, scope_name);
  std::vector<VariableId> slots;
  for (const VariableId parameter : parameters) {
    // copied: adding a variable moves the others
    const graph::VariableSpec spec = graph.variable(parameter);
    slots.push_back(graph.AddVariable({.name = spec.name,
                                       .dtype = spec.dtype,
                                       .shape = spec.shape,
                                       .is_trainable = false},
                                      site));
  }
  return slots;
}

Output GradientScale(Graph& graph, const std::vector<Output>& gradients,
                     const ClipOptions& clip, CallSite site) {
  if (clip.max_global_norm == 0.0) {
    return graph.Scalar(1.0, DType::kF32, site);
  }
  return graph::GlobalNormClipScale(gradients, clip.max_global_norm, site);
}

void Check(bool is_good, const std::string& message, CallSite site) {
  if (is_good) return;
  throw InvalidArgument(fmt::format("{}: {}", site.ToString(), message));
}

Output AsFloat(Output step, CallSite site) {
  return graph::Cast(step, DType::kF32, site);
}

}  // namespace

StepCounter AddStepCounter(Graph& graph, const std::string& name,
                           CallSite site) {
  const VariableId step = graph.AddVariable({.name = name,
                                             .dtype = DType::kI64,
                                             .shape = Shape({}),
                                             .is_trainable = false},
                                            site);
  const Output value = graph.Read(step, site);
  return {.value = value,
          .advance =
              graph::Assign(graph, step, graph::Add(value, 1.0, site), site)};
}

Output Adam(Graph& graph, const std::string& name,
            const std::vector<VariableId>& parameters,
            const std::vector<Output>& gradients, Output learning_rate,
            Output step, const graph::AdamUpdateOptions& options,
            const ClipOptions& clip, CallSite site) {
  const graph::AdamVariables variables{
      .parameters = parameters,
      .first_moments = AddSlots(graph, name + "/m", parameters, site),
      .second_moments = AddSlots(graph, name + "/v", parameters, site)};
  return graph::AdamUpdate(graph, variables, gradients, learning_rate,
                           GradientScale(graph, gradients, clip, site), step,
                           options, site);
}

Output Sgd(Graph& graph, const std::string& name,
           const std::vector<VariableId>& parameters,
           const std::vector<Output>& gradients, Output learning_rate,
           const graph::SgdUpdateOptions& options, const ClipOptions& clip,
           CallSite site) {
  std::vector<VariableId> momenta;
  if (options.momentum != 0.0) {
    momenta = AddSlots(graph, name + "/momentum", parameters, site);
  }
  return graph::SgdUpdate(parameters, momenta, gradients, learning_rate,
                          GradientScale(graph, gradients, clip, site), options,
                          site);
}

Output LinearSchedule(Output step, double first, double last, int64_t begin,
                      int64_t end, CallSite site) {
  Check(begin < end,
        fmt::format("LinearSchedule: want begin < end, got {} and {}", begin,
                    end),
        site);
  const auto start = static_cast<double>(begin);
  const auto length = static_cast<double>(end - begin);
  // the part of the way that is done, in [0, 1]
  const Output done = graph::Clip(
      graph::Affine(AsFloat(step, site), 1.0 / length, -start / length, site),
      0.0, 1.0, site);
  return graph::Affine(done, last - first, first, site);
}

Output CosineSchedule(Output step, double first, int64_t length,
                      CallSite site) {
  Check(length >= 1,
        fmt::format("CosineSchedule: want length >= 1, got {}", length), site);
  const Output done = graph::Clip(
      graph::Mul(AsFloat(step, site), 1.0 / static_cast<double>(length), site),
      0.0, 1.0, site);
  const Output cosine =
      graph::Cos(graph::Mul(done, std::numbers::pi, site), site);
  return graph::Affine(cosine, first / 2.0, first / 2.0, site);
}

Output PiecewiseConstantSchedule(Output step,
                                 const std::vector<int64_t>& boundaries,
                                 const std::vector<double>& values,
                                 CallSite site) {
  Check(values.size() == boundaries.size() + 1 &&
            std::is_sorted(boundaries.begin(), boundaries.end()),
        fmt::format("PiecewiseConstantSchedule: want ascending boundaries and "
                    "one value more, got {} boundaries and {} values",
                    boundaries.size(), values.size()),
        site);
  Graph& graph = *step.graph;
  Output value = graph.Scalar(values[0], DType::kF32, site);
  for (size_t i = 0; i < boundaries.size(); ++i) {
    const Output boundary =
        graph.Scalar(static_cast<double>(boundaries[i]), step.dtype(), site);
    value = graph::Where(graph::GreaterEqual(step, boundary, site),
                         graph.Scalar(values[i + 1], DType::kF32, site), value,
                         site);
  }
  return value;
}

}  // namespace replicant::nn
