#include "engine/graph/ops/image.h"

#include <fmt/format.h>

#include "base/error.h"
#include "engine/graph/ops/elementwise.h"

namespace replicant::graph {
namespace {

std::vector<TensorType> InferShift(const InferContext& context) {
  const Shape& x = context.shape(0);
  if (x.rank() != 4 || x[1] < 1 || x[2] < 1 ||
      context.inputs[1] != TensorType{DType::kI32, Shape({x[0], 2})}) {
    context.Fail(fmt::format(
        "want images [B,H,W,C] and offsets i32[B,2], got {} and {}",
        context.inputs[0].ToString(), context.inputs[1].ToString()));
  }
  return {context.inputs[0]};
}

}  // namespace

Output NormalizePixels(Output x, DType dtype, double scale, double offset,
                       CallSite site) {
  const Graph::SiteScope scope(x, site);
  if (x.dtype() != DType::kU8 || !IsFloating(dtype)) {
    throw ShapeError(fmt::format(
        "{}: NormalizePixels: want u8 pixels and a floating dtype, got {} and "
        "{}",
        x.graph->site().ToString(), x.type().ToString(), DTypeName(dtype)));
  }
  return Affine(Cast(x, dtype), scale, offset);
}

Output RandomShift(Output x, Output offsets, CallSite site) {
  static const OpDef op{.name = "RandomShift",
                        .infer = &InferShift,
                        .no_gradient_reason = "it is applied to frames"};
  return x.graph->Add({.op = &op, .inputs = {x, offsets}}, site);
}

}  // namespace replicant::graph
