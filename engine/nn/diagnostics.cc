#include "engine/nn/diagnostics.h"

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"

namespace replicant::nn {

using graph::Output;

Output DormantShare(const std::vector<Output>& hidden, graph::CallSite site) {
  if (hidden.empty()) return {};
  const graph::Graph::SiteScope scope(hidden[0], site);
  Output num_dormant;
  double num_units = 0.0;
  for (const Output& layer : hidden) {
    const Output activity = graph::ReduceMean(
        graph::Abs(graph::StopGradient(layer)), {.axes = {0}});
    const Output limit = graph::Mul(graph::ReduceMean(activity), 0.1);
    const Output count = graph::ReduceSum(
        graph::Cast(graph::LessEqual(activity, limit), activity.dtype()));
    num_dormant =
        num_dormant.is_valid() ? graph::Add(num_dormant, count) : count;
    num_units += static_cast<double>(layer.shape()[1]);
  }
  return graph::Mul(num_dormant, 1.0 / num_units);
}

}  // namespace replicant::nn
