#include "replicator/calls/collective_ops.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/shape_ops.h"

namespace replicant::replicator {
namespace {

using graph::GradientContext;
using graph::InferContext;
using graph::Node;
using graph::OpDef;
using graph::TensorType;

Shape WithRows(const Shape& shape, int64_t rows) {
  std::vector<int64_t> dims = {rows};
  dims.insert(dims.end(), shape.dims().begin(), shape.dims().end());
  return Shape(std::span<const int64_t>(dims));
}

std::vector<TensorType> InferSame(const InferContext& context) {
  return {context.inputs[0]};
}

std::vector<TensorType> InferGathered(const InferContext& context) {
  if (context.shape(0).rank() == Shape::kMaxRank) {
    context.Fail(fmt::format("{} has as many dimensions as there may be",
                             context.shape(0).ToString()));
  }
  return {{context.dtype(0),
           WithRows(context.shape(0), context.attributes.Int("num_replicas"))}};
}

std::vector<TensorType> InferScattered(const InferContext& context) {
  const Shape& shape = context.shape(0);
  return {
      {context.dtype(0),
       shape.WithLeading(shape[0] / context.attributes.Int("num_replicas"))}};
}

[[noreturn]] void FailWithoutGradient(const Node& node) {
  throw InvalidArgument(
      fmt::format("{}: {} {} '{}' has no gradient; hint: put StopGradient in "
                  "front of it, if "
                  "none should flow",
                  node.site.ToString(), node.op->name,
                  ToString(ReduceOpOf(node)), node.name));
}

std::vector<Output> AllReduceGradient(const GradientContext& context) {
  const Node& node = context.node;
  const ReplicaRank rank = RankOf(node);
  const CallSite site = node.site;
  const auto sum = [&](Output x) {
    return AddAllReduce(x, ReduceOp::kSum, rank, site);
  };
  switch (ReduceOpOf(node)) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return {AddAllReduce(context.output_gradient(), ReduceOpOf(node), rank,
                           site)};
    case ReduceOp::kMin:
    case ReduceOp::kMax: {
      const Output x = context.input(0);
      const Output is_chosen =
          graph::Cast(graph::Equal(x, context.output()), x.dtype());
      return {graph::Mul(is_chosen, graph::Div(sum(context.output_gradient()),
                                               sum(is_chosen)))};
    }
    case ReduceOp::kProd:
      break;
  }
  FailWithoutGradient(node);
}

std::vector<Output> AllGatherGradient(const GradientContext& context) {
  const Output row = AddReduceScatter(context.output_gradient(), ReduceOp::kSum,
                                      RankOf(context.node), context.node.site);
  return {graph::ReshapeTo(row, context.input(0).shape())};
}

std::vector<Output> ReduceScatterGradient(const GradientContext& context) {
  const ReduceOp op = ReduceOpOf(context.node);
  const ReplicaRank rank = RankOf(context.node);
  if (op != ReduceOp::kSum && op != ReduceOp::kMean) {
    FailWithoutGradient(context.node);
  }
  const Output all = graph::ReshapeTo(
      AddAllGather(context.output_gradient(), rank, context.node.site),
      context.input(0).shape());
  return {op == ReduceOp::kMean ? graph::Mul(all, 1.0 / rank.count) : all};
}

std::vector<Output> BroadcastGradient(const GradientContext& context) {
  const ReplicaRank rank = RankOf(context.node);
  const Output sum = AddAllReduce(context.output_gradient(), ReduceOp::kSum,
                                  rank, context.node.site);
  const bool is_source = context.node.attributes.Int("source") == rank.id;
  return {graph::Mul(sum, is_source ? 1.0 : 0.0)};
}

// Each is a separate call, even if two look equal.
constexpr OpDef kAllReduce{.name = "AllReduce",
                           .infer = &InferSame,
                           .gradient = &AllReduceGradient,
                           .is_pure = false};
constexpr OpDef kAllGather{.name = "AllGather",
                           .infer = &InferGathered,
                           .gradient = &AllGatherGradient,
                           .is_pure = false};
constexpr OpDef kReduceScatter{.name = "ReduceScatter",
                               .infer = &InferScattered,
                               .gradient = &ReduceScatterGradient,
                               .is_pure = false};
constexpr OpDef kBroadcast{.name = "Broadcast",
                           .infer = &InferSame,
                           .gradient = &BroadcastGradient,
                           .is_pure = false};

Output Add(const OpDef& op, Output x, ReplicaRank rank,
           graph::Attributes attributes, CallSite site) {
  // on the device of its input
  const Graph::DeviceScope device(*x.graph, x.producer().device);
  attributes.Set("replica_id", int64_t{rank.id});
  attributes.Set("num_replicas", int64_t{rank.count});
  return x.graph->Add(
      {.op = &op, .inputs = {x}, .attributes = std::move(attributes)}, site);
}

}  // namespace

Output AddAllReduce(Output x, ReduceOp op, ReplicaRank rank, CallSite site,
                    GradientFormat format) {
  graph::Attributes attributes = {{"op", static_cast<int64_t>(op)}};
  if (x.dtype() == DType::kF32) {
    if (format.dtype != DType::kF32) {
      attributes.Set("wire", std::string(DTypeName(format.dtype)));
    }
    if (format.top_k > 0.0) attributes.Set("top_k", format.top_k);
  }
  return Add(kAllReduce, x, rank, std::move(attributes), site);
}

Output AddAllGather(Output x, ReplicaRank rank, CallSite site) {
  return Add(kAllGather, x, rank, {}, site);
}

Output AddReduceScatter(Output x, ReduceOp op, ReplicaRank rank,
                        CallSite site) {
  return Add(kReduceScatter, x, rank, {{"op", static_cast<int64_t>(op)}}, site);
}

Output AddBroadcast(Output x, int source, ReplicaRank rank, CallSite site) {
  return Add(kBroadcast, x, rank, {{"source", int64_t{source}}}, site);
}

Primitive PrimitiveOf(const Node& node) {
  if (node.op == &kAllReduce) return Primitive::kAllReduce;
  if (node.op == &kAllGather) return Primitive::kAllGather;
  if (node.op == &kReduceScatter) return Primitive::kReduceScatter;
  if (node.op == &kBroadcast) return Primitive::kBroadcast;
  return Primitive::kNone;
}

ReplicaRank RankOf(const Node& node) {
  return {.id = static_cast<int>(node.attributes.Int("replica_id")),
          .count = static_cast<int>(node.attributes.Int("num_replicas"))};
}

GradientFormat FormatOf(const Graph& graph, const Node& node) {
  GradientFormat format{.dtype = graph.type(node.inputs[0]).dtype};
  if (node.attributes.Has("wire")) {
    format.dtype = *ParseDType(node.attributes.Text("wire"));
  }
  if (node.attributes.Has("top_k")) {
    format.top_k = node.attributes.Float("top_k");
  }
  return format;
}

ReduceOp ReduceOpOf(const Node& node) {
  return static_cast<ReduceOp>(node.attributes.Int("op"));
}

std::string Describe(const Graph& graph, const Node& node) {
  std::string text(node.op->name);
  if (node.attributes.Has("op")) {
    text += fmt::format(" {}", ToString(ReduceOpOf(node)));
  }
  if (node.attributes.Has("source")) {
    text += fmt::format(" from replica {}", node.attributes.Int("source"));
  }
  text += fmt::format(" of {}", graph.type(node.inputs[0]).ToString());
  if (node.attributes.Has("wire")) {
    text += fmt::format(" as {}", node.attributes.Text("wire"));
  }
  if (node.attributes.Has("top_k")) {
    text += fmt::format(" of the largest {}", node.attributes.Float("top_k"));
  }
  return text;
}

}  // namespace replicant::replicator
