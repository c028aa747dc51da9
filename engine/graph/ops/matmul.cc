#include "engine/graph/ops/matmul.h"

#include <fmt/format.h>

#include "base/check.h"

namespace replicant::graph {
namespace {

using Product = Output (*)(Output, Output, const MatMulOptions&, CallSite);

// The type of c for matrices (rank 2), or for batches of them (rank 3).
TensorType InferProduct(const InferContext& context, int rank) {
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
  const bool is_batch = rank == 3;
  if (a.rank() != rank || b.rank() != rank || !IsFloating(context.dtype(0)) ||
      context.dtype(0) != context.dtype(1)) {
    context.Fail(fmt::format(
        "want two {} of one floating dtype, got {}",
        is_batch ? "batches of matrices [B,M,K] and [B,K,N]" : "matrices",
        describe()));
  }
  const int row = rank - 2, column = rank - 1;
  if (a[transpose_a ? row : column] != b[transpose_b ? column : row] ||
      (is_batch && a[0] != b[0])) {
    context.Fail(fmt::format("{}inner dimensions differ: {}",
                             is_batch ? "batches or " : "", describe()));
  }
  const int64_t m = a[transpose_a ? column : row];
  const int64_t n = b[transpose_b ? row : column];
  return {context.ResultDType(),
          is_batch ? Shape({a[0], m, n}) : Shape({m, n})};
}

std::vector<TensorType> InferMatMul(const InferContext& context) {
  const TensorType c = InferProduct(context, 2);
  if (context.num_inputs() == 3) {
    REPLICANT_CHECK(context.shape(2) == Shape({c.shape[1]}),
                    "bias {} for {} columns", context.shape(2).ToString(),
                    c.shape[1]);
  }
  return {c};
}

std::vector<TensorType> InferBatchMatMul(const InferContext& context) {
  return {InferProduct(context, 3)};
}

// With A = a or a^T and B = b or b^T: dA = dc B^T and dB = A^T dc. The gradient
// of a transposed operand is computed transposed.
template <Product kProduct>
std::vector<Output> Gradient(const GradientContext& context) {
  const Output& a = context.input(0);
  const Output& b = context.input(1);
  const Output& dc = context.output_gradient();
  const bool transpose_a = context.node.attributes.Bool("transpose_a");
  const bool transpose_b = context.node.attributes.Bool("transpose_b");
  const auto product = [](Output x, Output y, const MatMulOptions& options) {
    return kProduct(x, y, options, CallSite::Here());
  };
  const Output da =
      transpose_a
          ? product(b, dc, {.transpose_a = transpose_b, .transpose_b = true})
          : product(dc, b, {.transpose_b = !transpose_b});
  const Output db =
      transpose_b
          ? product(dc, a, {.transpose_a = true, .transpose_b = transpose_a})
          : product(a, dc, {.transpose_a = !transpose_a});
  return {da, db};
}

Output AddProduct(const OpDef& op, Output a, Output b,
                  const MatMulOptions& options, CallSite site) {
  return a.graph->Add({.op = &op,
                       .inputs = {a, b},
                       .attributes = {{"transpose_a", options.transpose_a},
                                      {"transpose_b", options.transpose_b}}},
                      site);
}

}  // namespace

Output MatMul(Output a, Output b, const MatMulOptions& options, CallSite site) {
  static const OpDef op{
      .name = "MatMul", .infer = &InferMatMul, .gradient = &Gradient<&MatMul>};
  return AddProduct(op, a, b, options, site);
}

Output BatchMatMul(Output a, Output b, const MatMulOptions& options,
                   CallSite site) {
  static const OpDef op{.name = "BatchMatMul",
                        .infer = &InferBatchMatMul,
                        .gradient = &Gradient<&BatchMatMul>};
  return AddProduct(op, a, b, options, site);
}

}  // namespace replicant::graph
