#include "engine/graph/ops/image.h"

#include <fmt/format.h>

#include <span>
#include <vector>

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

FrameImage ImageOf(const Attributes& attributes) {
  return {.begin = attributes.Int("begin"),
          .pixels = attributes.Int("pixels"),
          .channels = attributes.Int("channels")};
}

std::vector<TensorType> InferGatherStacks(const InferContext& context) {
  const Shape& frames = context.shape(0);
  const Shape& slots = context.shape(1);
  const auto [begin, pixels, channels] = ImageOf(context.attributes);
  if (frames.rank() != 2 || context.dtype(0) != DType::kU8 ||
      slots.rank() < 1 || slots.rank() >= Shape::kMaxRank ||
      slots[slots.rank() - 1] < 1 || context.dtype(1) != DType::kI32) {
    context.Fail(fmt::format(
        "want frames u8[N,F] and slots i32[...,K], got {} and {}",
        context.inputs[0].ToString(), context.inputs[1].ToString()));
  }
  if (begin < 0 || pixels < 1 || channels < 1 ||
      pixels > (frames[1] - begin) / channels) {
    context.Fail(fmt::format(
        "an image of {} pixels with {} channels from byte {} on leaves frames "
        "of {} bytes",
        pixels, channels, begin, frames[1]));
  }
  std::vector<int64_t> dims(slots.dims().begin(), slots.dims().end());
  dims.back() *= channels;
  dims.insert(dims.end() - 1, pixels);
  return {{DType::kU8, Shape(std::span<const int64_t>(dims))}};
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

Output GatherStacks(Output frames, Output slots, const FrameImage& image,
                    CallSite site) {
  static const OpDef op{.name = "GatherStacks",
                        .infer = &InferGatherStacks,
                        .no_gradient_reason = "it is applied to frames"};
  return frames.graph->Add({.op = &op,
                            .inputs = {frames, slots},
                            .attributes = {{"begin", image.begin},
                                           {"pixels", image.pixels},
                                           {"channels", image.channels}}},
                           site);
}

}  // namespace replicant::graph
