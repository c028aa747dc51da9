// Matrix products, distributions over the last axis, losses.
#include <fmt/format.h>

#include "base/tensor/host_tensor.h"
#include "engine/export/stablehlo_forms.h"

namespace replicant::exporting {
namespace {

// The product of two matrices, or of each pair in a batch.
HloValues WriteMatMul(HloBuilder& b, const StableHloNode& n) {
  const int rank = n.type().shape.rank();
  const bool is_batch = rank == 3;
  const int contracted_a =
      n.attributes().Bool("transpose_a") ? rank - 2 : rank - 1;
  const int contracted_b =
      n.attributes().Bool("transpose_b") ? rank - 1 : rank - 2;
  return {b.Op(
      {.op = "dot_general",
       .operands = {n.input(0), n.input(1)},
       .dtype = n.type().dtype,
       .shape = n.type().shape,
       .attributes = fmt::format("dot_dimension_numbers = #stablehlo.dot<{}"
                                 "lhs_contracting_dimensions = [{}], "
                                 "rhs_contracting_dimensions = [{}]>, {}",
                                 is_batch ? "lhs_batching_dimensions = [0], "
                                            "rhs_batching_dimensions = [0], "
                                          : "",
                                 contracted_a, contracted_b,
                                 ProductPrecision(n.input(0).dtype))})};
}

// S x = b by S = L L^T: L y = b, then L^T x = y.
HloValues WriteCholeskySolve(HloBuilder& b, const StableHloNode& n) {
  const HloValue a = b.Widen(n.input(0));
  const Dims swapped = a.shape.rank() == 2 ? Dims{1, 0} : Dims{0, 2, 1};
  const HloValue symmetric = b.Mul(b.Add(a, b.Transpose(a, swapped)), 0.5);
  const HloValue lower = b.Op({.op = "cholesky",
                               .operands = {symmetric},
                               .dtype = a.dtype,
                               .shape = a.shape,
                               .attributes = "lower = true"});
  const auto solve = [&](const HloValue& right, std::string_view transpose) {
    return b.Op(
        {.op = "triangular_solve",
         .operands = {lower, right},
         .dtype = right.dtype,
         .shape = right.shape,
         .attributes = fmt::format("left_side = true, lower = true, "
                                   "transpose_a = #stablehlo<transpose {}>, "
                                   "unit_diagonal = false",
                                   transpose)});
  };
  const HloValue y = solve(b.Widen(n.input(1)), "NO_TRANSPOSE");
  return {b.Convert(solve(y, "TRANSPOSE"), n.type().dtype)};
}

// --- over the last axis ---

// [...] -> [..., K]
HloValue SpreadOverLast(HloBuilder& b, const HloValue& x, const Shape& shape) {
  Dims axes;
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) axes.push_back(axis);
  return b.BroadcastInDim(x, shape, axes);
}

// x[...,k] - max - ln sum_j e^(x[...,j] - max)
HloValue LogProbabilities(HloBuilder& b, const HloValue& x) {
  const int64_t last = x.shape.rank() - 1;
  const HloValue largest = b.Reduce("maximum", -kInfinity, x, {last});
  const HloValue shifted = b.Sub(x, SpreadOverLast(b, largest, x.shape));
  const HloValue total =
      b.Unary("log", b.Sum(b.Unary("exponential", shifted), {last}));
  return b.Sub(shifted, SpreadOverLast(b, total, x.shape));
}

HloValues WriteLogSoftmax(HloBuilder& b, const StableHloNode& n) {
  return {b.Convert(LogProbabilities(b, b.Widen(n.input(0))), n.type().dtype)};
}

HloValues WriteSoftmax(HloBuilder& b, const StableHloNode& n) {
  return {b.Convert(
      b.Unary("exponential", LogProbabilities(b, b.Widen(n.input(0)))),
      n.type().dtype)};
}

HloValues WriteCrossEntropy(HloBuilder& b, const StableHloNode& n) {
  const HloValue log_probabilities = LogProbabilities(b, b.Widen(n.input(0)));
  const HloValue sum =
      b.Sum(b.Mul(b.Widen(n.input(1)), log_probabilities), {1});
  return {b.Convert(b.Unary("negate", sum), n.type().dtype)};
}

// A vector of floating numbers, each rounded once.
template <typename ValueFn>
HloValue Vector(HloBuilder& b, DType dtype, int64_t size,
                const ValueFn& value) {
  HostTensor numbers(dtype, Shape({size}));
  for (int64_t k = 0; k < size; ++k) {
    if (dtype == DType::kF64) {
      numbers.MutableSpan<double>()[static_cast<size_t>(k)] = value(k);
    } else {
      numbers.MutableSpan<float>()[static_cast<size_t>(k)] =
          static_cast<float>(value(k));
    }
  }
  return b.Constant(numbers.view());
}

// m[b,k] = sum_j p[b,j] max(0, 1 - |T[b,j] - z[k]| / gap), as one tensor
// [B, J, K] of shares, which XLA fuses with the sum.
HloValues WriteProjection(HloBuilder& b, const StableHloNode& n) {
  const HloValue p = b.Widen(n.input(0));
  const int64_t rows = p.shape[0];
  const int64_t atoms = p.shape[1];
  const double v_min = n.attributes().Float("v_min");
  const double v_max = n.attributes().Float("v_max");
  const double gap = (v_max - v_min) / static_cast<double>(atoms - 1);
  const HloValue z = Vector(b, p.dtype, atoms, [&](int64_t k) {
    return v_min + static_cast<double>(k) * gap;
  });
  const HloValue reward = b.BroadcastInDim(b.Widen(n.input(1)), p.shape, {0});
  const HloValue discount = b.BroadcastInDim(b.Widen(n.input(2)), p.shape, {0});
  HloValue moved =
      b.Add(reward, b.Mul(discount, b.BroadcastInDim(z, p.shape, {1})));
  moved = b.Binary("minimum", b.Binary("maximum", moved, b.Like(v_min, moved)),
                   b.Like(v_max, moved));
  const Shape pairs({rows, atoms, atoms});
  const HloValue distance =
      b.Unary("abs", b.Sub(b.BroadcastInDim(moved, pairs, {0, 1}),
                           b.BroadcastInDim(z, pairs, {2})));
  const HloValue share =
      b.Sub(b.Like(1.0, distance), b.Div(distance, b.Like(gap, distance)));
  // NaN is kept
  const HloValue positive = b.Binary("maximum", share, b.Like(0.0, share));
  const HloValue mass = b.Mul(b.BroadcastInDim(p, pairs, {0, 1}), positive);
  return {b.Convert(b.Sum(mass, {1}), n.type().dtype)};
}

}  // namespace

void AddRowForms(StableHloForms& forms) {
  forms["MatMul"] = {&WriteMatMul};
  forms["BatchMatMul"] = {&WriteMatMul};
  forms["CholeskySolve"] = {&WriteCholeskySolve};
  forms["Softmax"] = {&WriteSoftmax};
  forms["LogSoftmax"] = {&WriteLogSoftmax};
  forms["SoftmaxCrossEntropy"] = {&WriteCrossEntropy};
  forms["CategoricalProjection"] = {&WriteProjection};
}

}  // namespace replicant::exporting
