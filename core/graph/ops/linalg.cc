#include "core/graph/ops/linalg.h"

#include <fmt/format.h>

#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/shape_ops.h"

namespace replicant::graph {
namespace {

bool AreFloatingOfOneDType(const InferContext& context) {
  return IsFloating(context.dtype(0)) && context.dtype(0) == context.dtype(1);
}

std::vector<TensorType> InferBatchMatMul(const InferContext& context) {
  const bool transpose_a = context.attributes.Bool("transpose_a");
  const bool transpose_b = context.attributes.Bool("transpose_b");
  const Shape& a = context.shape(0);
  const Shape& b = context.shape(1);
  const auto describe = [&] {
    return fmt::format("a {}{} and b {}{}", context.inputs[0].ToString(),
                       transpose_a ? " transposed" : "",
                       context.inputs[1].ToString(),
                       transpose_b ? " transposed" : "");
  };
  if (a.rank() != 3 || b.rank() != 3 || !AreFloatingOfOneDType(context)) {
    context.Fail(fmt::format(
        "want two batches of matrices [B,M,K] and [B,K,N] of one floating "
        "dtype, got {}",
        describe()));
  }
  if (a[0] != b[0] || a[transpose_a ? 1 : 2] != b[transpose_b ? 2 : 1]) {
    context.Fail(
        fmt::format("batches or inner dimensions differ: {}", describe()));
  }
  return {{context.dtype(0),
           Shape({a[0], a[transpose_a ? 2 : 1], b[transpose_b ? 1 : 2]})}};
}

// As of MatMul, for each pair.
std::vector<Output> BatchMatMulGradient(const GradientContext& context) {
  const Output& a = context.input(0);
  const Output& b = context.input(1);
  const Output& dc = context.output_gradient();
  const bool transpose_a = context.node.attributes.Bool("transpose_a");
  const bool transpose_b = context.node.attributes.Bool("transpose_b");
  const Output da =
      transpose_a
          ? BatchMatMul(b, dc,
                        {.transpose_a = transpose_b, .transpose_b = true})
          : BatchMatMul(dc, b, {.transpose_b = !transpose_b});
  const Output db =
      transpose_b
          ? BatchMatMul(dc, a,
                        {.transpose_a = true, .transpose_b = transpose_a})
          : BatchMatMul(a, dc, {.transpose_a = !transpose_a});
  return {da, db};
}

std::vector<TensorType> InferSolve(const InferContext& context) {
  const Shape& a = context.shape(0);
  const Shape& b = context.shape(1);
  const int rank = a.rank();
  const bool fits = (rank == 2 || rank == 3) && b.rank() == rank &&
                    AreFloatingOfOneDType(context) &&
                    a[rank - 1] == a[rank - 2] && a[rank - 1] == b[rank - 2] &&
                    a[0] == b[0];
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

Output BatchMatMul(Output a, Output b, const MatMulOptions& options,
                   CallSite site) {
  static const OpDef op{.name = "BatchMatMul",
                        .infer = &InferBatchMatMul,
                        .gradient = &BatchMatMulGradient};
  return a.graph->Add({.op = &op,
                       .inputs = {a, b},
                       .attributes = {{"transpose_a", options.transpose_a},
                                      {"transpose_b", options.transpose_b}}},
                      site);
}

Output CholeskySolve(Output a, Output b, CallSite site) {
  static const OpDef op{.name = "CholeskySolve",
                        .infer = &InferSolve,
                        .gradient = &SolveGradient};
  return a.graph->Add({.op = &op, .inputs = {a, b}}, site);
}

}  // namespace replicant::graph
