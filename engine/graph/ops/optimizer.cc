#include "engine/graph/ops/optimizer.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/error.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"

namespace replicant::graph {
namespace {

constexpr std::string_view kStateReason = "state is not differentiated through";

// Checks inputs in groups of `count` tensors, each group with the types of the
// first one. The first `num_updated` groups are variables. Scalars follow the
// groups.
std::vector<TensorType> InferGroups(const InferContext& context,
                                    int num_updated) {
  const auto count = static_cast<size_t>(context.attributes.Int("count"));
  const auto groups = static_cast<size_t>(context.attributes.Int("groups"));
  for (size_t i = 0; i < count; ++i) {
    const TensorType& first = context.inputs[i];
    if (!IsFloating(first.dtype)) {
      context.Fail(
          fmt::format("want floating variables, got {}", first.ToString()));
    }
    for (size_t group = 1; group < groups; ++group) {
      const TensorType& other = context.inputs[group * count + i];
      if (other != first) {
        context.Fail(
            fmt::format("variable {} is {}, its slot or gradient is {}", i,
                        first.ToString(), other.ToString()));
      }
    }
  }
  return {context.inputs.begin(),
          context.inputs.begin() + static_cast<int64_t>(count) * num_updated};
}

void CheckScalar(const InferContext& context, size_t input, DType dtype,
                 std::string_view what) {
  const TensorType wanted{dtype, Shape({})};
  if (context.inputs[input] != wanted) {
    context.Fail(fmt::format("want {} of {}, got {}", what, wanted.ToString(),
                             context.inputs[input].ToString()));
  }
}

std::vector<TensorType> InferSgd(const InferContext& context) {
  const size_t n = context.inputs.size();
  const DType scalar = ScalarDType(context.dtype(0));
  CheckScalar(context, n - 2, scalar, "learning_rate");
  CheckScalar(context, n - 1, scalar, "gradient_scale");
  return InferGroups(context,
                     static_cast<int>(context.attributes.Int("groups") -
                                      context.attributes.Int("num_gradients")));
}

std::vector<TensorType> InferAdam(const InferContext& context) {
  const size_t n = context.inputs.size();
  const DType scalar = ScalarDType(context.dtype(0));
  CheckScalar(context, n - 3, scalar, "learning_rate");
  CheckScalar(context, n - 2, scalar, "gradient_scale");
  CheckScalar(context, n - 1, DType::kI64, "step");
  return InferGroups(context, 3);
}

std::vector<TensorType> InferMovingAverage(const InferContext& context) {
  CheckScalar(context, context.inputs.size() - 1, ScalarDType(context.dtype(0)),
              "rate");
  return InferGroups(context, 1);
}

std::vector<TensorType> InferGlobalNorm(const InferContext& context) {
  for (const TensorType& input : context.inputs) {
    if (!IsFloating(input.dtype) || input.dtype != context.dtype(0)) {
      context.Fail(fmt::format("want tensors of one floating dtype, got {}",
                               input.ToString()));
    }
  }
  return {{ScalarDType(context.dtype(0)), Shape({})}};
}

// The first inputs of an update: variables, read group by group.
struct Variables {
  void Read(Graph& graph, const std::vector<VariableId>& group) {
    for (const VariableId variable : group) {
      inputs.push_back(graph.Read(variable));
      updates.push_back(variable);
    }
  }

  std::vector<Output> inputs;
  std::vector<VariableId> updates;
};

void CheckGroup(const Graph& graph, size_t size, size_t wanted,
                std::string_view what) {
  if (size == wanted) return;
  throw InvalidArgument(fmt::format("{}: {} variables but {} {}",
                                    graph.site().ToString(), wanted, size,
                                    what));
}

void CheckPositive(const Graph& graph, double value, std::string_view what) {
  if (value > 0.0) return;
  throw InvalidArgument(
      fmt::format("{}: {} > 0, got {}", graph.site().ToString(), what, value));
}

}  // namespace

DType ScalarDType(DType variables) {
  return variables == DType::kF64 ? DType::kF64 : DType::kF32;
}

Output SgdUpdate(const std::vector<VariableId>& parameters,
                 const std::vector<VariableId>& momenta,
                 const std::vector<Output>& gradients, Output learning_rate,
                 Output gradient_scale, const SgdUpdateOptions& options,
                 CallSite site) {
  static const OpDef op{.name = "SgdUpdate",
                        .infer = &InferSgd,
                        .no_gradient_reason = kStateReason,
                        .is_pure = false};
  Graph& graph = *learning_rate.graph;
  const Graph::SiteScope scope(graph, site);
  CheckGroup(graph, gradients.size(), parameters.size(), "gradients");
  const bool has_momentum = options.momentum != 0.0;
  CheckGroup(graph, momenta.size(), has_momentum ? parameters.size() : 0,
             "momenta");
  Variables variables;
  variables.Read(graph, parameters);
  variables.Read(graph, momenta);
  std::vector<Output> inputs = variables.inputs;
  inputs.insert(inputs.end(), gradients.begin(), gradients.end());
  inputs.insert(inputs.end(), {learning_rate, gradient_scale});
  return graph.Add(
      {.op = &op,
       .inputs = std::move(inputs),
       .attributes = {{"count", static_cast<int64_t>(parameters.size())},
                      {"groups", int64_t{has_momentum ? 3 : 2}},
                      {"num_gradients", int64_t{1}},
                      {"momentum", options.momentum},
                      {"nesterov", options.nesterov},
                      {"weight_decay", options.weight_decay}},
       .updates = std::move(variables.updates)});
}

// Algorithm 1 has this many arguments.
// NOLINTNEXTLINE(readability-function-size)
Output AdamUpdate(Graph& graph, const AdamVariables& variables,
                  const std::vector<Output>& gradients, Output learning_rate,
                  Output gradient_scale, Output step,
                  const AdamUpdateOptions& options, CallSite site) {
  static const OpDef op{.name = "AdamUpdate",
                        .infer = &InferAdam,
                        .no_gradient_reason = kStateReason,
                        .is_pure = false};
  const Graph::SiteScope scope(graph, site);
  const size_t count = variables.parameters.size();
  CheckGroup(graph, variables.first_moments.size(), count, "first moments");
  CheckGroup(graph, variables.second_moments.size(), count, "second moments");
  CheckGroup(graph, gradients.size(), count, "gradients");
  Variables read;
  read.Read(graph, variables.parameters);
  read.Read(graph, variables.first_moments);
  read.Read(graph, variables.second_moments);
  std::vector<Output> inputs = read.inputs;
  inputs.insert(inputs.end(), gradients.begin(), gradients.end());
  inputs.insert(inputs.end(), {learning_rate, gradient_scale, step});
  return graph.Add({.op = &op,
                    .inputs = std::move(inputs),
                    .attributes = {{"count", static_cast<int64_t>(count)},
                                   {"groups", int64_t{4}},
                                   {"num_gradients", int64_t{1}},
                                   {"beta1", options.beta1},
                                   {"beta2", options.beta2},
                                   {"epsilon", options.epsilon},
                                   {"weight_decay", options.weight_decay}},
                    .updates = std::move(read.updates)});
}

Output MovingAverageUpdate(const std::vector<VariableId>& targets,
                           const std::vector<Output>& sources, Output rate,
                           CallSite site) {
  static const OpDef op{.name = "MovingAverageUpdate",
                        .infer = &InferMovingAverage,
                        .no_gradient_reason = kStateReason,
                        .is_pure = false};
  Graph& graph = *rate.graph;
  const Graph::SiteScope scope(graph, site);
  CheckGroup(graph, sources.size(), targets.size(), "sources");
  Variables variables;
  variables.Read(graph, targets);
  std::vector<Output> inputs = variables.inputs;
  inputs.insert(inputs.end(), sources.begin(), sources.end());
  inputs.push_back(rate);
  return graph.Add(
      {.op = &op,
       .inputs = std::move(inputs),
       .attributes = {{"count", static_cast<int64_t>(targets.size())},
                      {"groups", int64_t{2}}},
       .updates = std::move(variables.updates)});
}

Output PeriodicCopyUpdate(const std::vector<VariableId>& targets,
                          const std::vector<Output>& sources, Output step,
                          int64_t period, CallSite site) {
  Graph& graph = *step.graph;
  const Graph::SiteScope scope(graph, site);
  CheckPositive(graph, static_cast<double>(period),
                "PeriodicCopyUpdate: want period");
  const Output zero = graph.Scalar(0.0, step.dtype());
  const Output length = graph.Scalar(static_cast<double>(period), step.dtype());
  const Output is_due = Equal(Modulo(step, length), zero);
  return MovingAverageUpdate(targets, sources,
                             Cast(is_due, ScalarDType(sources[0].dtype())));
}

void SetUpdatePart(const UpdatePart& part, Attributes* attributes) {
  attributes->Set("part", part.index);
  attributes->Set("num_parts", part.count);
  if (part.num_gradients == 1) return;
  attributes->Set("groups", attributes->Int("groups") + part.num_gradients -
                                attributes->Int("num_gradients"));
  attributes->Set("num_gradients", part.num_gradients);
  attributes->Set("gradient_factor", part.gradient_factor);
}

UpdatePart UpdatePartOf(const Attributes& attributes) {
  UpdatePart part;
  if (attributes.Has("num_parts")) {
    part.index = attributes.Int("part");
    part.count = attributes.Int("num_parts");
  }
  if (attributes.Has("gradient_factor")) {
    part.num_gradients = attributes.Int("num_gradients");
    part.gradient_factor = attributes.Float("gradient_factor");
  }
  return part;
}

bool IsGroupedUpdate(const Node& node) {
  return !node.updates.empty() && node.attributes.Has("groups");
}

std::optional<size_t> FirstGradient(const Node& node) {
  if (!node.attributes.Has("num_gradients")) return std::nullopt;
  return static_cast<size_t>(
      node.attributes.Int("count") *
      (node.attributes.Int("groups") - node.attributes.Int("num_gradients")));
}

Output GlobalNorm(const std::vector<Output>& xs, CallSite site) {
  static const OpDef op{.name = "GlobalNorm",
                        .infer = &InferGlobalNorm,
                        .no_gradient_reason = "it is applied to gradients"};
  REPLICANT_CHECK(!xs.empty(), "{}: GlobalNorm of nothing", site.ToString());
  return xs[0].graph->Add({.op = &op, .inputs = xs}, site);
}

Output GlobalNormClipScale(const std::vector<Output>& xs, double max_norm,
                           CallSite site) {
  REPLICANT_CHECK(!xs.empty(), "{}: GlobalNormClipScale of nothing",
                  site.ToString());
  Graph& graph = *xs[0].graph;
  const Graph::SiteScope scope(graph, site);
  CheckPositive(graph, max_norm, "GlobalNormClipScale: want max_norm");
  const Output norm = GlobalNorm(xs);
  const Output scale =
      Div(graph.Scalar(max_norm, norm.dtype()), Add(norm, 1e-6));
  return Minimum(scale, graph.Scalar(1.0, norm.dtype()));
}

Output ClipRowsByNorm(Output x, double max_norm, CallSite site) {
  const Graph::SiteScope scope(x, site);
  CheckPositive(*x.graph, max_norm, "ClipRowsByNorm: want max_norm");
  const Output norm =
      Sqrt(ReduceSum(Square(x), {.axes = {-1}, .keep_dims = true}));
  const Output limit = x.graph->Scalar(max_norm, x.dtype());
  return Mul(x, Div(limit, Maximum(norm, limit)));
}

}  // namespace replicant::graph
