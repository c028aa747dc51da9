#include "engine/nn/diagnostics.h"

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/matmul.h"
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

Output ParticipationRatio(Output x, graph::CallSite site) {
  const graph::Graph::SiteScope scope(x, site);
  const Output rows = graph::StopGradient(x);
  const Output centred = graph::Sub(
      rows, graph::ReduceMean(rows, {.axes = {0}, .keep_dims = true}));
  // the same eigenvalues as of C, but for zeros and a factor; smaller for a
  // batch of fewer rows than columns
  const Output gram = graph::MatMul(centred, centred, {.transpose_b = true});
  const Output trace = graph::ReduceSum(graph::Square(centred));
  const Output trace_of_square = graph::ReduceSum(graph::Square(gram));
  return graph::Div(graph::Square(trace), graph::Add(trace_of_square, 1e-30));
}

}  // namespace replicant::nn
