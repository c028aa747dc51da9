#include "engine/graph/ops/shape_ops.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"

namespace replicant::graph {
namespace {

std::string Ints(const std::vector<int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ","));
}

std::vector<int64_t> ToVector(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

std::vector<TensorType> InferReshape(const InferContext& context) {
  const std::vector<int64_t>& wanted = context.attributes.Ints("shape");
  std::vector<int64_t> dims = wanted;
  int64_t known = 1;
  auto unknown = dims.end();
  bool is_good = dims.size() <= Shape::kMaxRank;
  for (auto dim = dims.begin(); dim != dims.end(); ++dim) {
    if (*dim == -1 && unknown == dims.end()) {
      unknown = dim;
    } else if (*dim < 0 || (*dim > 0 && known > Shape::kMaxElements / *dim)) {
      is_good = false;
    } else {
      known *= *dim;
    }
  }
  const int64_t count = context.shape(0).num_elements();
  if (is_good && unknown != dims.end()) {
    is_good = known > 0 && count % known == 0;
    if (is_good) *unknown = count / known;
  } else if (is_good) {
    is_good = known == count;
  }
  if (!is_good) {
    context.Fail(fmt::format("{} of {} elements cannot become {}",
                             context.inputs[0].ToString(), count,
                             Ints(wanted)));
  }
  return {{context.dtype(0), Shape(std::span<const int64_t>(dims))}};
}

std::vector<Output> ReshapeGradient(const GradientContext& context) {
  return {ReshapeTo(context.output_gradient(), context.input(0).shape())};
}

std::vector<TensorType> InferTranspose(const InferContext& context) {
  const std::vector<int64_t>& permutation =
      context.attributes.Ints("permutation");
  std::vector<int64_t> sorted = permutation;
  std::sort(sorted.begin(), sorted.end());
  const Shape& shape = context.shape(0);
  bool is_good = static_cast<int>(sorted.size()) == shape.rank();
  for (size_t i = 0; is_good && i < sorted.size(); ++i) {
    is_good = sorted[i] == static_cast<int64_t>(i);
  }
  if (!is_good) {
    context.Fail(fmt::format("{} is not a permutation of the axes of {}",
                             Ints(permutation), context.inputs[0].ToString()));
  }
  std::vector<int64_t> dims;
  dims.reserve(permutation.size());
  for (const int64_t axis : permutation) {
    dims.push_back(shape[static_cast<int>(axis)]);
  }
  return {{context.dtype(0), Shape(std::span<const int64_t>(dims))}};
}

std::vector<Output> TransposeGradient(const GradientContext& context) {
  const auto& permutation = context.node.attributes.Ints("permutation");
  std::vector<int64_t> inverse(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) {
    inverse[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
  }
  return {Transpose(context.output_gradient(), inverse)};
}

std::vector<TensorType> InferConcat(const InferContext& context) {
  const int64_t axis = context.attributes.Int("axis");
  const Shape& first = context.shape(0);
  if (axis < 0 || axis >= first.rank()) {
    context.Fail(fmt::format("axis {} is outside the rank of {}", axis,
                             context.inputs[0].ToString()));
  }
  std::vector<int64_t> dims = ToVector(first);
  for (int i = 1; i < context.num_inputs(); ++i) {
    const Shape& shape = context.shape(i);
    bool is_good =
        context.dtype(i) == context.dtype(0) && shape.rank() == first.rank();
    for (int a = 0; is_good && a < first.rank(); ++a) {
      is_good = a == axis || shape[a] == first[a];
    }
    if (!is_good) {
      context.Fail(fmt::format(
          "want one dtype and equal dimensions but axis {}, got {} and {}",
          axis, context.inputs[0].ToString(),
          context.inputs[static_cast<size_t>(i)].ToString()));
    }
    dims[static_cast<size_t>(axis)] += shape[static_cast<int>(axis)];
  }
  return {{context.dtype(0), Shape(std::span<const int64_t>(dims))}};
}

// The gradient of each input is its slice of dy.
std::vector<Output> ConcatGradient(const GradientContext& context) {
  const auto axis = static_cast<size_t>(context.node.attributes.Int("axis"));
  std::vector<int64_t> begin(
      static_cast<size_t>(context.output().shape().rank()), 0);
  std::vector<Output> gradients;
  for (const Output& input : context.inputs) {
    const std::vector<int64_t> size = ToVector(input.shape());
    gradients.push_back(IsFloating(input.dtype())
                            ? Slice(context.output_gradient(), begin, size)
                            : kNoGradient);
    begin[axis] += size[axis];
  }
  return gradients;
}

std::vector<TensorType> InferSlice(const InferContext& context) {
  const auto& begin = context.attributes.Ints("begin");
  const auto& size = context.attributes.Ints("size");
  const Shape& shape = context.shape(0);
  const auto rank = static_cast<size_t>(shape.rank());
  bool is_good = begin.size() == rank && size.size() == rank;
  for (size_t i = 0; is_good && i < rank; ++i) {
    const int64_t dim = shape[static_cast<int>(i)];
    is_good = begin[i] >= 0 && begin[i] <= dim && size[i] >= 0 &&
              size[i] <= dim - begin[i];
  }
  if (!is_good) {
    context.Fail(fmt::format("begin {} and size {} leave {}", Ints(begin),
                             Ints(size), context.inputs[0].ToString()));
  }
  return {{context.dtype(0), Shape(std::span<const int64_t>(size))}};
}

std::vector<Output> SliceGradient(const GradientContext& context) {
  const auto& begin = context.node.attributes.Ints("begin");
  const auto& size = context.node.attributes.Ints("size");
  const Shape& shape = context.input(0).shape();
  std::vector<int64_t> after;
  for (size_t i = 0; i < begin.size(); ++i) {
    after.push_back(shape[static_cast<int>(i)] - begin[i] - size[i]);
  }
  return {Pad(context.output_gradient(), begin, after)};
}

std::vector<TensorType> InferPad(const InferContext& context) {
  const auto& before = context.attributes.Ints("before");
  const auto& after = context.attributes.Ints("after");
  std::vector<int64_t> dims = ToVector(context.shape(0));
  bool is_good = before.size() == dims.size() && after.size() == dims.size();
  for (size_t i = 0; is_good && i < dims.size(); ++i) {
    is_good = before[i] >= 0 && after[i] >= 0;
    dims[i] += before[i] + after[i];
  }
  if (!is_good) {
    context.Fail(fmt::format(
        "want one number >= 0 per axis of {}, got before {} and after {}",
        context.inputs[0].ToString(), Ints(before), Ints(after)));
  }
  return {{context.dtype(0), Shape(std::span<const int64_t>(dims))}};
}

std::vector<Output> PadGradient(const GradientContext& context) {
  return {Slice(context.output_gradient(),
                context.node.attributes.Ints("before"),
                ToVector(context.input(0).shape()))};
}

std::vector<TensorType> InferSame(const InferContext& context) {
  return {context.inputs[0]};
}

std::vector<Output> NoGradients(const GradientContext& context) {
  return std::vector<Output>(context.inputs.size(), kNoGradient);
}

std::vector<Output> IdentityGradient(const GradientContext& context) {
  return {context.output_gradient()};
}

}  // namespace

Output Reshape(Output x, const std::vector<int64_t>& dims, CallSite site) {
  static const OpDef op{
      .name = "Reshape", .infer = &InferReshape, .gradient = &ReshapeGradient};
  // one reshape in place of two
  if (x.producer().op == &op) {
    const Endpoint from = x.producer().inputs[0];
    x = {x.graph, from.node, from.index};
  }
  if (ToVector(x.shape()) == dims) return x;
  return x.graph->Add(
      {.op = &op, .inputs = {x}, .attributes = {{"shape", dims}}}, site);
}

Output ReshapeTo(Output x, const Shape& shape, CallSite site) {
  return Reshape(x, ToVector(shape), site);
}

Output Transpose(Output x, const std::vector<int64_t>& permutation,
                 CallSite site) {
  static const OpDef op{.name = "Transpose",
                        .infer = &InferTranspose,
                        .gradient = &TransposeGradient};
  return x.graph->Add(
      {.op = &op, .inputs = {x}, .attributes = {{"permutation", permutation}}},
      site);
}

Output Concat(const std::vector<Output>& xs, int64_t axis, CallSite site) {
  static const OpDef op{
      .name = "Concat", .infer = &InferConcat, .gradient = &ConcatGradient};
  REPLICANT_CHECK(!xs.empty(), "{}: Concat of nothing", site.ToString());
  const int64_t rank = xs[0].shape().rank();
  if (axis < 0 && axis >= -rank) axis += rank;
  return xs[0].graph->Add(
      {.op = &op, .inputs = xs, .attributes = {{"axis", axis}}}, site);
}

Output Slice(Output x, const std::vector<int64_t>& begin,
             const std::vector<int64_t>& size, CallSite site) {
  static const OpDef op{
      .name = "Slice", .infer = &InferSlice, .gradient = &SliceGradient};
  return x.graph->Add({.op = &op,
                       .inputs = {x},
                       .attributes = {{"begin", begin}, {"size", size}}},
                      site);
}

Output Pad(Output x, const std::vector<int64_t>& before,
           const std::vector<int64_t>& after, double value, CallSite site) {
  static const OpDef op{
      .name = "Pad", .infer = &InferPad, .gradient = &PadGradient};
  const auto is_zero = [](int64_t count) { return count == 0; };
  if (before.size() == static_cast<size_t>(x.shape().rank()) &&
      after.size() == before.size() && std::ranges::all_of(before, is_zero) &&
      std::ranges::all_of(after, is_zero)) {
    return x;
  }
  return x.graph->Add(
      {.op = &op,
       .inputs = {x},
       .attributes = {{"before", before}, {"after", after}, {"value", value}}},
      site);
}

Output StopGradient(Output x, CallSite site) {
  static const OpDef op{
      .name = "StopGradient", .infer = &InferSame, .gradient = &NoGradients};
  return x.graph->Add({.op = &op, .inputs = {x}}, site);
}

Output Identity(Output x, CallSite site) {
  static const OpDef op{
      .name = "Identity", .infer = &InferSame, .gradient = &IdentityGradient};
  return x.graph->Add({.op = &op, .inputs = {x}}, site);
}

}  // namespace replicant::graph
