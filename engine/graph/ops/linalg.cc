#include "engine/graph/ops/linalg.h"

#include <fmt/format.h>

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/shape_ops.h"

namespace replicant::graph {
namespace {

std::vector<TensorType> InferSolve(const InferContext& context) {
  const Shape& a = context.shape(0);
  const Shape& b = context.shape(1);
  const int rank = a.rank();
  const bool fits =
      (rank == 2 || rank == 3) && b.rank() == rank &&
      IsFloating(context.dtype(0)) && context.dtype(0) == context.dtype(1) &&
      a[rank - 1] == a[rank - 2] && a[rank - 1] == b[rank - 2] && a[0] == b[0];
  if (!fits) {
    context.Fail(fmt::format(
        "want a [N,N] and b [N,M], or batches [B,N,N] and [B,N,M], of one "
        "floating dtype, got a {} and b {}",
        context.inputs[0].ToString(), context.inputs[1].ToString()));
  }
  return {context.inputs[1]};
}

std::vector<Output> SolveGradient(const GradientContext& context) {
  const Output& a = context.input(0);
  const Output x = context.output();
  const Output db = CholeskySolve(a, context.output_gradient());
  const auto outer = [&](Output left, Output right) {
    return left.shape().rank() == 2
               ? MatMul(left, right, {.transpose_b = true})
               : BatchMatMul(left, right, {.transpose_b = true});
  };
  return {Mul(Add(outer(db, x), outer(x, db)), -0.5), db};
}

}  // namespace

Output CholeskySolve(Output a, Output b, CallSite site) {
  static const OpDef op{.name = "CholeskySolve",
                        .infer = &InferSolve,
                        .gradient = &SolveGradient};
  return a.graph->Add({.op = &op, .inputs = {a, b}}, site);
}

}  // namespace replicant::graph
