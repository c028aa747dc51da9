// Moves of elements, reductions, and indexing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/export/stablehlo_forms.h"
#include "engine/graph/ops/elementwise.h"

namespace replicant::exporting {
namespace {

Dims DimsOf(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

Dims Range(int64_t begin, int64_t end) {
  Dims values;
  for (int64_t i = begin; i < end; ++i) values.push_back(i);
  return values;
}

HloValues WriteInput(HloBuilder& /*b*/, const StableHloNode& n) {
  return {n.input(0)};
}

HloValues WriteConstant(HloBuilder& b, const StableHloNode& n) {
  const HostTensor& value = *n.node.constant;
  return {b.Constant(value.view())};
}

HloValues WriteReshape(HloBuilder& b, const StableHloNode& n) {
  return {b.Reshape(n.input(0), n.type().shape)};
}

HloValues WriteTranspose(HloBuilder& b, const StableHloNode& n) {
  return {b.Transpose(n.input(0), n.attributes().Ints("permutation"))};
}

HloValues WriteConcat(HloBuilder& b, const StableHloNode& n) {
  return {
      b.Concat({n.inputs.begin(), n.inputs.end()}, n.attributes().Int("axis"))};
}

HloValues WriteSlice(HloBuilder& b, const StableHloNode& n) {
  const Dims& begin = n.attributes().Ints("begin");
  Dims end = n.attributes().Ints("size");
  for (size_t i = 0; i < end.size(); ++i) end[i] += begin[i];
  return {b.Slice(n.input(0), begin, end)};
}

HloValues WritePad(HloBuilder& b, const StableHloNode& n) {
  const Dims& before = n.attributes().Ints("before");
  return {b.Pad(n.input(0), n.attributes().Float("value"), before,
                n.attributes().Ints("after"), Dims(before.size(), 0))};
}

// --- reductions ---

// Integers are summed in i64 and saturate only at the end, however many are
// summed.
HloValue Summed(HloBuilder& b, const HloValue& x) {
  return graph::IsFloating(x.dtype) ? b.Widen(x) : b.Convert(x, DType::kI64);
}

HloValues FinishReduction(HloBuilder& b, const StableHloNode& n,
                          const HloValue& reduced) {
  return {b.Convert(b.Reshape(reduced, n.type().shape), n.type().dtype)};
}

HloValues WriteReduceSum(HloBuilder& b, const StableHloNode& n) {
  return FinishReduction(
      b, n, b.Sum(Summed(b, n.input(0)), n.attributes().Ints("axes")));
}

HloValues WriteReduceMean(HloBuilder& b, const StableHloNode& n) {
  const HloValue x = b.Widen(n.input(0));
  const Dims& axes = n.attributes().Ints("axes");
  double count = 1.0;
  for (const int64_t axis : axes) {
    count *= static_cast<double>(x.shape[static_cast<int>(axis)]);
  }
  const HloValue sum = b.Sum(x, axes);
  return FinishReduction(b, n, b.Div(sum, b.Like(count, sum)));
}

HloValues WriteReduceMax(HloBuilder& b, const StableHloNode& n) {
  return FinishReduction(
      b, n,
      b.Reduce("maximum", -kInfinity, n.input(0), n.attributes().Ints("axes")));
}

HloValues WriteReduceMin(HloBuilder& b, const StableHloNode& n) {
  return FinishReduction(
      b, n,
      b.Reduce("minimum", kInfinity, n.input(0), n.attributes().Ints("axes")));
}

// The least index whose element equals the maximum; 0 if NaN hides it.
HloValues WriteArgMax(HloBuilder& b, const StableHloNode& n) {
  const HloValue& x = n.input(0);
  const int last = x.shape.rank() - 1;
  const HloValue largest = b.Reduce("maximum", -kInfinity, x, {last});
  const HloValue is_largest =
      b.Compare("EQ", x, b.BroadcastInDim(largest, x.shape, Range(0, last)));
  const HloValue index = b.Iota(DType::kI64, x.shape, last);
  const auto columns = static_cast<double>(x.shape[last]);
  const HloValue least =
      b.Reduce("minimum", columns,
               b.Select(is_largest, index, b.Like(columns, index)), {last});
  return {b.Select(b.Compare("EQ", least, columns), b.Like(0.0, least), least)};
}

// --- indices ---

// Rows of `table` along its first axes, by `index` [..., A]: A numbers for the
// first A axes.
HloValue GatherRows(HloBuilder& b, const HloValue& table, const HloValue& index,
                    const Shape& result) {
  const int depth = index.shape.rank() - 1;
  const int64_t axes = index.shape[depth];
  Dims sizes = DimsOf(table.shape);
  for (int64_t i = 0; i < axes; ++i) sizes[static_cast<size_t>(i)] = 1;
  return b.Op(
      {.op = "gather",
       .operands = {table, index},
       .dtype = table.dtype,
       .shape = result,
       .attributes = fmt::format(
           "dimension_numbers = #stablehlo.gather<offset_dims = [{}], "
           "collapsed_slice_dims = [{}], start_index_map = [{}], "
           "index_vector_dim = {}>, slice_sizes = array<i64: {}>, "
           "indices_are_sorted = false",
           fmt::join(Range(depth, result.rank()), ", "),
           fmt::join(Range(0, axes), ", "), fmt::join(Range(0, axes), ", "),
           depth, fmt::join(sizes, ", "))});
}

// Numbers with an axis of size 1 behind them.
HloValue AsIndex(HloBuilder& b, const HloValue& indices) {
  Dims dims = DimsOf(indices.shape);
  dims.push_back(1);
  return b.Reshape(indices, Shape(std::span<const int64_t>(dims)));
}

// XLA moves an index outside into the table; such rows become zeros here.
HloValues WriteGather(HloBuilder& b, const StableHloNode& n) {
  const HloValue& table = n.input(0);
  const HloValue& indices = n.input(1);
  const Shape& shape = n.type().shape;
  if (shape.num_elements() == 0 || table.shape[0] == 0) {
    return {b.Fill(0.0, table.dtype, shape)};
  }
  const HloValue rows = GatherRows(b, table, AsIndex(b, indices), shape);
  const HloValue is_inside =
      b.Binary("and", b.Compare("GE", indices, 0.0),
               b.Compare("LT", indices, static_cast<double>(table.shape[0])));
  return {b.Select(
      b.BroadcastInDim(is_inside, shape, Range(0, indices.shape.rank())), rows,
      b.Like(0.0, rows))};
}

// XLA skips an index outside, as our kernels do.
HloValues WriteScatterAdd(HloBuilder& b, const StableHloNode& n) {
  const HloValue dy = b.Widen(n.input(0));
  const HloValue& indices = n.input(1);
  const int depth = indices.shape.rank();
  const HloValue zeros = b.Fill(0.0, dy.dtype, n.type().shape);
  if (dy.shape.num_elements() == 0) return {b.Convert(zeros, n.type().dtype)};
  const HloValue sum = b.Op(
      {.op = "scatter",
       .operands = {zeros, AsIndex(b, indices), dy},
       .dtype = dy.dtype,
       .shape = zeros.shape,
       .attributes = fmt::format(
           "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims "
           "= [{}], inserted_window_dims = [0], scatter_dims_to_operand_dims "
           "= [0], index_vector_dim = {}>, indices_are_sorted = false, "
           "unique_indices = false",
           fmt::join(Range(depth, dy.shape.rank()), ", "), depth),
       .regions = {{.op = "add", .dtype = dy.dtype}}});
  return {b.Convert(sum, n.type().dtype)};
}

HloValues WriteOneHot(HloBuilder& b, const StableHloNode& n) {
  const HloValue& indices = n.input(0);
  const Shape& shape = n.type().shape;
  const HloValue column = b.Iota(indices.dtype, shape, shape.rank() - 1);
  const HloValue wanted =
      b.BroadcastInDim(indices, shape, Range(0, indices.shape.rank()));
  return {b.Convert(b.Compare("EQ", column, wanted), n.type().dtype)};
}

// Rows of pixels are gathered first, then columns, so that pieces are larger
// than a pixel.
HloValues WriteRandomShift(HloBuilder& b, const StableHloNode& n) {
  HloValue y = n.input(0);
  const HloValue& offsets = n.input(1);
  const int64_t batch = y.shape[0];
  for (int axis = 1; axis <= 2; ++axis) {
    const int64_t size = y.shape[axis];
    const Shape grid({batch, size});
    const HloValue offset =
        b.BroadcastInDim(b.Slice(offsets, {0, axis - 1}, {batch, axis}),
                         Shape({batch, size, 1}), {0, 2});
    const Shape column({batch, size, 1});
    const HloValue from = b.Binary(
        "minimum",
        b.Binary("maximum", b.Add(b.Iota(DType::kI32, column, 1), offset),
                 b.Fill(0.0, DType::kI32, column)),
        b.Fill(static_cast<double>(size - 1), DType::kI32, column));
    const HloValue index =
        b.Concat({b.Iota(DType::kI32, column, 0), from}, /*axis=*/2);
    // the second axis of the table is the one that is shifted
    const Dims swap = {0, 2, 1, 3};
    if (axis == 2) y = b.Transpose(y, swap);
    y = GatherRows(b, y, index, y.shape);
    if (axis == 2) y = b.Transpose(y, swap);
  }
  return {y};
}

}  // namespace

void AddShapeForms(StableHloForms& forms) {
  forms["Constant"] = {&WriteConstant};
  forms["Identity"] = {&WriteInput};
  forms["StopGradient"] = {&WriteInput};
  forms["Reshape"] = {&WriteReshape};
  forms["Transpose"] = {&WriteTranspose};
  forms["Concat"] = {&WriteConcat};
  forms["Slice"] = {&WriteSlice};
  forms["Pad"] = {&WritePad};
  forms["ReduceSum"] = {&WriteReduceSum};
  forms["ReduceMean"] = {&WriteReduceMean};
  forms["ReduceMax"] = {&WriteReduceMax};
  forms["ReduceMin"] = {&WriteReduceMin};
  forms["ArgMax"] = {&WriteArgMax};
  forms["Gather"] = {&WriteGather};
  forms["ScatterAdd"] = {&WriteScatterAdd};
  forms["OneHot"] = {&WriteOneHot};
  forms["RandomShift"] = {&WriteRandomShift};
}

}  // namespace replicant::exporting
