#include "core/graph/ops/matmul.h"

#include <fmt/format.h>

#include "core/base/check.h"

namespace replicant::graph {
namespace {

std::vector<TensorType> InferMatMul(const InferContext& context) {
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
  if (a.rank() != 2 || b.rank() != 2 || !IsFloating(context.dtype(0)) ||
      context.dtype(0) != context.dtype(1)) {
    context.Fail(fmt::format("want two matrices of one floating dtype, got {}",
                             describe()));
  }
  if (a[transpose_a ? 0 : 1] != b[transpose_b ? 1 : 0]) {
    context.Fail(fmt::format("inner dimensions differ: {}", describe()));
  }
  const int64_t n = b[transpose_b ? 0 : 1];
  if (context.num_inputs() == 3) {
    REPLICANT_CHECK(context.shape(2) == Shape({n}), "bias {} of {} columns",
                    context.shape(2).ToString(), n);
  }
  return {{context.ResultDType(), Shape({a[transpose_a ? 1 : 0], n})}};
}

// With A = a or a^T and B = b or b^T: dA = dc B^T and dB = A^T dc. The gradient
// of a transposed operand is computed transposed.
std::vector<Output> Gradient(const GradientContext& context) {
  const Output& a = context.input(0);
  const Output& b = context.input(1);
  const Output& dc = context.output_gradient();
  const bool transpose_a = context.node.attributes.Bool("transpose_a");
  const bool transpose_b = context.node.attributes.Bool("transpose_b");
  const Output da =
      transpose_a
          ? MatMul(b, dc, {.transpose_a = transpose_b, .transpose_b = true})
          : MatMul(dc, b, {.transpose_b = !transpose_b});
  const Output db =
      transpose_b
          ? MatMul(dc, a, {.transpose_a = true, .transpose_b = transpose_a})
          : MatMul(a, dc, {.transpose_a = !transpose_a});
  return {da, db};
}

}  // namespace

Output MatMul(Output a, Output b, const MatMulOptions& options, CallSite site) {
  static const OpDef op{
      .name = "MatMul", .infer = &InferMatMul, .gradient = &Gradient};
  return a.graph->Add({.op = &op,
                       .inputs = {a, b},
                       .attributes = {{"transpose_a", options.transpose_a},
                                      {"transpose_b", options.transpose_b}}},
                      site);
}

}  // namespace replicant::graph
