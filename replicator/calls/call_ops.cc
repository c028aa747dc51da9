#include "replicator/calls/call_ops.h"

#include <string>

#include "base/check.h"
#include "replicator/calls/collective_ops.h"
#include "replicator/comm/top_k.h"

namespace replicant::replicator {
namespace {

using comm::Collective;
using graph::Attributes;
using graph::InferContext;
using graph::Node;
using graph::OpDef;
using graph::TensorType;

Attributes ToAttributes(const CallSpec& call) {
  return {{"kind", static_cast<int64_t>(call.kind)},
          {"op", static_cast<int64_t>(call.op)},
          {"source", int64_t{call.source}},
          {"factor", call.factor}};
}

Attributes ToAttributes(const BucketSpec& bucket) {
  Attributes attributes = ToAttributes(bucket.call);
  attributes.Set("number", bucket.number);
  attributes.Set("is_async", bucket.is_async);
  attributes.Set("dtype", std::string(DTypeName(bucket.dtype)));
  attributes.Set("wire", std::string(DTypeName(bucket.gradient_format.dtype)));
  attributes.Set("top_k", bucket.gradient_format.top_k);
  attributes.Set("replica_id", int64_t{bucket.rank.id});
  attributes.Set("num_replicas", int64_t{bucket.rank.count});
  return attributes;
}

std::vector<int64_t> ToVector(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

std::vector<TensorType> InferCall(const InferContext& context) {
  return {
      {context.dtype(0), Shape(std::span(context.attributes.Ints("shape")))},
      context.inputs[1]};
}

std::vector<TensorType> InferStart(const InferContext& context) {
  const double top_k = context.attributes.Float("top_k");
  int64_t count = 0;
  for (int i = 0; i + 1 < context.num_inputs(); ++i) {
    const int64_t elements = context.shape(i).num_elements();
    count += top_k > 0.0 ? static_cast<int64_t>(comm::TopKCount(
                               static_cast<size_t>(elements), top_k))
                         : elements;
  }
  if (top_k > 0.0) {
    return {{DType::kI32,
             Shape({context.attributes.Int("num_replicas"), 2 * count})},
            context.inputs.back()};
  }
  const DType dtype = *ParseDType(context.attributes.Text("wire"));
  return {{dtype, Shape({count})}, context.inputs.back()};
}

std::vector<TensorType> InferWait(const InferContext& context) {
  // every shape after its rank
  const std::span<const int64_t> coded(context.attributes.Ints("shapes"));
  const DType dtype = *ParseDType(context.attributes.Text("dtype"));
  std::vector<TensorType> types;
  for (size_t i = 0; i < coded.size();) {
    const auto rank = static_cast<size_t>(coded[i]);
    types.push_back({dtype, Shape(coded.subspan(i + 1, rank))});
    i += 1 + rank;
  }
  return types;
}

constexpr std::string_view kNoCallGradient =
    "gradients are taken before it is there";
constexpr OpDef kCall{.name = "CollectiveCall",
                      .infer = &InferCall,
                      .no_gradient_reason = kNoCallGradient,
                      .is_pure = false};
constexpr OpDef kStart{.name = "BucketStart",
                       .infer = &InferStart,
                       .no_gradient_reason = kNoCallGradient,
                       .is_pure = false};
constexpr OpDef kWait{.name = "BucketWait",
                      .infer = &InferWait,
                      .no_gradient_reason = kNoCallGradient,
                      .is_pure = false};

}  // namespace

CallSpec CallOf(const Node& placeholder) {
  CallSpec call;
  switch (PrimitiveOf(placeholder)) {
    case Primitive::kAllReduce:
      call.kind = Collective::Kind::kAllReduce;
      break;
    case Primitive::kAllGather:
      call.kind = Collective::Kind::kAllGather;
      return call;
    case Primitive::kReduceScatter:
      call.kind = Collective::Kind::kReduceScatter;
      break;
    case Primitive::kBroadcast:
      call.kind = Collective::Kind::kBroadcast;
      call.source = static_cast<int>(placeholder.attributes.Int("source"));
      return call;
    case Primitive::kNone:
      REPLICANT_CHECK(false, "'{}' is not a placeholder", placeholder.name);
  }
  const ReduceOp op = ReduceOpOf(placeholder);
  // a sum and a factor, which is applied after bf16 is converted back to f32
  call.op = op == ReduceOp::kMean ? ReduceOp::kSum : op;
  if (op == ReduceOp::kMean) {
    call.factor =
        1.0 / static_cast<double>(placeholder.attributes.Int("num_replicas"));
  }
  return call;
}

Output AddCollectiveCall(Output x, Output token, const CallSpec& call,
                         const Shape& shape, CallSite site) {
  Attributes attributes = ToAttributes(call);
  attributes.Set("shape", ToVector(shape));
  return x.graph->Add(
      {.op = &kCall, .inputs = {x, token}, .attributes = std::move(attributes)},
      site);
}

Output AddBucketStart(const std::vector<Output>& xs, Output token,
                      const BucketSpec& bucket, CallSite site) {
  std::vector<Output> inputs = xs;
  inputs.push_back(token);
  return token.graph->Add({.op = &kStart,
                           .inputs = std::move(inputs),
                           .attributes = ToAttributes(bucket)},
                          site);
}

Output AddBucketWait(Output started, const std::vector<Shape>& shapes,
                     const BucketSpec& bucket, CallSite site) {
  std::vector<int64_t> coded;
  for (const Shape& shape : shapes) {
    coded.push_back(shape.rank());
    coded.insert(coded.end(), shape.dims().begin(), shape.dims().end());
  }
  Attributes attributes = ToAttributes(bucket);
  attributes.Set("shapes", std::move(coded));
  return started.graph->Add(
      {.op = &kWait, .inputs = {started}, .attributes = std::move(attributes)},
      site);
}

CallNode CallNodeOf(const Node& node) {
  if (node.op == &kCall) return CallNode::kCall;
  if (node.op == &kStart) return CallNode::kStart;
  if (node.op == &kWait) return CallNode::kWait;
  return CallNode::kNone;
}

CallSpec CallSpecOf(const Node& node) {
  return {.kind = static_cast<Collective::Kind>(node.attributes.Int("kind")),
          .op = static_cast<ReduceOp>(node.attributes.Int("op")),
          .source = static_cast<int>(node.attributes.Int("source")),
          .factor = node.attributes.Float("factor")};
}

BucketSpec BucketSpecOf(const Node& node) {
  return {
      .number = node.attributes.Int("number"),
      .call = CallSpecOf(node),
      .rank = RankOf(node),
      .dtype = *ParseDType(node.attributes.Text("dtype")),
      .gradient_format = {.dtype = *ParseDType(node.attributes.Text("wire")),
                          .top_k = node.attributes.Float("top_k")},
      .is_async = node.attributes.Bool("is_async")};
}

}  // namespace replicant::replicator
