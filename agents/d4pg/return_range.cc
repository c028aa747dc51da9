#include "agents/d4pg/return_range.h"

#include "agents/d4pg/distribution.h"
#include "agents/observation_normalizer.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/state.h"
#include "engine/nn/initializers.h"

namespace replicant::agents::d4pg {
namespace {

// Of the range, while all rewards are 0.
constexpr double kMinLength = 1e-8;

VariableId AddSquare(Graph& graph, const char* name, double first,
                     DType dtype) {
  return graph.AddVariable({.name = name,
                            .dtype = dtype,
                            .shape = Shape({}),
                            .initializer = nn::Constant(first),
                            .is_trainable = false});
}

}  // namespace

ReturnRange::ReturnRange(Graph& graph, const DistributionConfig& config,
                         const LearningSpec& spec, CallSite site)
    : width_(1.0 / (1.0 - spec.discount)) {
  const Graph::SiteScope scope(graph, site);
  const double first = width_ / config.range_deviations;
  positive_ =
      AddSquare(graph, "returns/positive_square", first * first, spec.dtype);
  negative_ = AddSquare(graph, "returns/negative_square", 0.0, spec.dtype);
  positive_square_ = graph.Read(positive_);
  negative_square_ = graph.Read(negative_);
  v_max_ = graph::Mul(graph::Sqrt(positive_square_), config.range_deviations);
  v_min_ = graph::Mul(graph::Sqrt(negative_square_), -config.range_deviations);
  length_ = graph::Maximum(graph::Sub(v_max_, v_min_),
                           graph.Scalar(kMinLength, spec.dtype));
}

Output ReturnRange::ToAtoms(Output reward, Output discount) const {
  // (R + D G - v_min) = (R - (1 - D) v_min) + D (G - v_min)
  const Output rest = graph::Affine(discount, -1.0, 1.0);
  const Output above = graph::Sub(reward, graph::Mul(rest, v_min_));
  return graph::Mul(graph::Div(above, length_), width_);
}

Output ReturnRange::ToReturns(Output value) const {
  return graph::Add(ToDifferences(value), v_min_);
}

Output ReturnRange::ToDifferences(Output value) const {
  return graph::Mul(graph::Mul(value, length_), 1.0 / width_);
}

std::vector<std::pair<std::string, Output>> ReturnRange::Scalars() const {
  return {{"v_min", v_min_}, {"v_max", v_max_}};
}

std::vector<Output> ReturnRange::Update(nn::ReplicaContext& replica,
                                        const TransitionBatch& batch,
                                        Output step, int64_t max_updates,
                                        CallSite site) {
  Graph& graph = replica.graph();
  const Graph::SiteScope scope(graph, site);
  const Output rest =
      graph::Clip(graph::Affine(batch.discount, -1.0, 1.0), kSmallestRest, 1.0);
  const Output lasting = graph::Div(batch.reward, rest);
  const auto change = [&](Output x, Output square) {
    return graph::Sub(graph::ReduceMean(graph::Square(graph::Relu(x))), square);
  };
  const std::vector<Output> changes =
      replica.MeanGradients({change(lasting, positive_square_),
                             change(graph::Neg(lasting), negative_square_)});
  const Output rate = StatisticsRate(step, max_updates, batch.reward.dtype());
  const auto assign = [&](VariableId variable, Output square, Output by) {
    return graph::Assign(graph, variable,
                         graph::Relu(graph::Add(square, graph::Mul(rate, by))));
  };
  return {assign(positive_, positive_square_, changes[0]),
          assign(negative_, negative_square_, changes[1])};
}

}  // namespace replicant::agents::d4pg
