#include "engine/nn/optimizers.h"

#include <fmt/format.h>

#include <algorithm>
#include <numbers>
#include <utility>

#include "base/error.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/state.h"
#include "engine/nn/trained_variables.h"

namespace replicant::nn {
namespace {

// Declares one variable of zeros per parameter.
std::vector<VariableId> AddSlots(Graph& graph, const std::string& scope_name,
                                 const std::vector<VariableId>& parameters) {
  const Graph::Scope scope(graph, scope_name);
  std::vector<VariableId> slots;
  for (const VariableId parameter : parameters) {
    // copied: adding a variable moves the others
    const graph::VariableSpec spec = graph.variable(parameter);
    slots.push_back(graph.AddVariable({.name = spec.name,
                                       .dtype = spec.dtype,
                                       .shape = spec.shape,
                                       .is_trainable = false}));
  }
  return slots;
}

Output GradientScale(Graph& graph, const std::vector<Output>& gradients,
                     const ClipOptions& clip) {
  if (clip.max_global_norm == 0.0) {
    return graph.Scalar(1.0, graph::ScalarDType(gradients.at(0).dtype()));
  }
  return graph::GlobalNormClipScale(gradients, clip.max_global_norm);
}

Output Scaled(const ReplicaContext& replica, Output learning_rate) {
  const double scale = replica.learning_rate_scale();
  return scale == 1.0 ? learning_rate : graph::Mul(learning_rate, scale);
}

void Check(const Graph& graph, bool is_good, const std::string& message) {
  if (is_good) return;
  throw InvalidArgument(
      fmt::format("{}: {}", graph.site().ToString(), message));
}

}  // namespace

StepCounter AddStepCounter(Graph& graph, const std::string& name,
                           CallSite site) {
  const Graph::SiteScope scope(graph, site);
  const VariableId step = graph.AddVariable({.name = name,
                                             .dtype = DType::kI64,
                                             .shape = Shape({}),
                                             .is_trainable = false});
  const Output value = graph.Read(step);
  return {.value = value,
          .advance = graph::Assign(graph, step, graph::Add(value, 1.0))};
}

// NOLINTNEXTLINE(readability-function-size): the last three have defaults
Output Adam(ReplicaContext& replica, const std::string& name,
            const std::vector<VariableId>& parameters,
            const std::vector<Output>& gradients, Output learning_rate,
            Output step, const graph::AdamUpdateOptions& options,
            const ClipOptions& clip, CallSite site) {
  Graph& graph = replica.graph();
  const Graph::SiteScope scope(graph, site);
  const graph::AdamVariables variables{
      .parameters = parameters,
      .first_moments = AddSlots(graph, name + "/m", parameters),
      .second_moments = AddSlots(graph, name + "/v", parameters)};
  return graph::AdamUpdate(
      graph, variables, gradients, Scaled(replica, learning_rate),
      GradientScale(graph, gradients, clip), step, options);
}

// NOLINTNEXTLINE(readability-function-size): the last three have defaults
Output Sgd(ReplicaContext& replica, const std::string& name,
           const std::vector<VariableId>& parameters,
           const std::vector<Output>& gradients, Output learning_rate,
           const graph::SgdUpdateOptions& options, const ClipOptions& clip,
           CallSite site) {
  Graph& graph = replica.graph();
  const Graph::SiteScope scope(graph, site);
  std::vector<VariableId> momenta;
  if (options.momentum != 0.0) {
    momenta = AddSlots(graph, name + "/momentum", parameters);
  }
  return graph::SgdUpdate(parameters, momenta, gradients,
                          Scaled(replica, learning_rate),
                          GradientScale(graph, gradients, clip), options);
}

std::vector<Output> AverageVariables(Graph& graph,
                                     const std::vector<VariableId>& variables,
                                     Output step, double decay, CallSite site) {
  const Graph::SiteScope scope(graph, site);
  const std::vector<Output> values = ReadAll(graph, variables);
  const DType dtype = graph::ScalarDType(values.at(0).dtype());
  const Output mean_rate = graph::Div(
      graph.Scalar(1.0, dtype), graph::Add(graph::Cast(step, dtype), 1.0));
  const Output rate =
      graph::Maximum(mean_rate, graph.Scalar(1.0 - decay, dtype));
  struct Part {
    std::vector<VariableId> averages;
    std::vector<Output> values;
  };
  Part trained, untrained;
  for (size_t i = 0; i < variables.size(); ++i) {
    graph::VariableSpec spec = graph.variable(variables[i]);
    spec.initializer = {};
    Part& part = spec.is_trainable ? trained : untrained;
    // declared as by a network under this scope
    const Graph::Scope average_scope(graph, kAverageScope);
    part.averages.push_back(graph.AddVariable(std::move(spec)));
    part.values.push_back(values[i]);
  }
  std::vector<Output> updates;
  for (const Part* const part : {&trained, &untrained}) {
    if (part->averages.empty()) continue;
    updates.push_back(
        graph::MovingAverageUpdate(part->averages, part->values, rate));
  }
  return updates;
}

Output LinearSchedule(Output step, double first, double last, int64_t begin,
                      int64_t end, DType dtype, CallSite site) {
  const Graph::SiteScope scope(step, site);
  Check(*step.graph, begin < end,
        fmt::format("LinearSchedule: want begin < end, got {} and {}", begin,
                    end));
  const auto start = static_cast<double>(begin);
  const auto length = static_cast<double>(end - begin);
  // share of the way from begin to end, in [0, 1]
  const Output done = graph::Clip(
      graph::Affine(graph::Cast(step, dtype), 1.0 / length, -start / length),
      0.0, 1.0);
  return graph::Affine(done, last - first, first);
}

Output CosineSchedule(Output step, double first, int64_t length, DType dtype,
                      CallSite site) {
  const Graph::SiteScope scope(step, site);
  Check(*step.graph, length >= 1,
        fmt::format("CosineSchedule: want length >= 1, got {}", length));
  const Output done = graph::Clip(
      graph::Mul(graph::Cast(step, dtype), 1.0 / static_cast<double>(length)),
      0.0, 1.0);
  const Output cosine = graph::Cos(graph::Mul(done, std::numbers::pi));
  return graph::Affine(cosine, first / 2.0, first / 2.0);
}

Output PiecewiseConstantSchedule(Output step,
                                 const std::vector<int64_t>& boundaries,
                                 const std::vector<double>& values, DType dtype,
                                 CallSite site) {
  const Graph::SiteScope scope(step, site);
  Check(*step.graph,
        values.size() == boundaries.size() + 1 &&
            std::is_sorted(boundaries.begin(), boundaries.end()),
        fmt::format("PiecewiseConstantSchedule: want ascending boundaries and "
                    "one value more, got {} boundaries and {} values",
                    boundaries.size(), values.size()));
  Graph& graph = *step.graph;
  Output value = graph.Scalar(values[0], dtype);
  for (size_t i = 0; i < boundaries.size(); ++i) {
    const Output boundary =
        graph.Scalar(static_cast<double>(boundaries[i]), step.dtype());
    value = graph::Where(graph::GreaterEqual(step, boundary),
                         graph.Scalar(values[i + 1], dtype), value);
  }
  return value;
}

}  // namespace replicant::nn
