#include "engine/graph/ops/indexing.h"

#include <fmt/format.h>

namespace replicant::graph {
namespace {

bool IsIndex(DType dtype) {
  return dtype == DType::kI32 || dtype == DType::kI64;
}

std::vector<TensorType> InferGather(const InferContext& context) {
  const Shape& table = context.shape(0);
  const Shape& indices = context.shape(1);
  if (table.rank() < 1 || !IsIndex(context.dtype(1)) ||
      table.rank() - 1 + indices.rank() > Shape::kMaxRank) {
    context.Fail(fmt::format(
        "want a table [N,...] and indices of i32 or i64, got {} and {}",
        context.inputs[0].ToString(), context.inputs[1].ToString()));
  }
  std::vector<int64_t> dims(indices.dims().begin(), indices.dims().end());
  dims.insert(dims.end(), table.dims().begin() + 1, table.dims().end());
  return {{context.dtype(0), Shape(std::span<const int64_t>(dims))}};
}

// inputs: dy, indices; attribute "rows" is N
std::vector<TensorType> InferScatterAdd(const InferContext& context) {
  const Shape& dy = context.shape(0);
  std::vector<int64_t> dims = {context.attributes.Int("rows")};
  dims.insert(dims.end(), dy.dims().begin() + context.shape(1).rank(),
              dy.dims().end());
  return {{context.dtype(0), Shape(std::span<const int64_t>(dims))}};
}

// The adjoint of adding rows is to gather them.
std::vector<Output> ScatterAddGradient(const GradientContext& context) {
  return {Gather(context.output_gradient(), context.input(1)), kNoGradient};
}

std::vector<Output> GatherGradient(const GradientContext& context) {
  static const OpDef op{.name = "ScatterAdd",
                        .infer = &InferScatterAdd,
                        .gradient = &ScatterAddGradient};
  const Output& table = context.input(0);
  return {
      table.graph->Add({.op = &op,
                        .inputs = {context.output_gradient(), context.input(1)},
                        .attributes = {{"rows", table.shape()[0]}}}),
      kNoGradient};
}

std::vector<TensorType> InferOneHot(const InferContext& context) {
  const int64_t depth = context.attributes.Int("depth");
  const Shape& indices = context.shape(0);
  if (depth < 1 || !IsIndex(context.dtype(0)) ||
      indices.rank() >= Shape::kMaxRank) {
    context.Fail(
        fmt::format("want indices of i32 or i64 and depth >= 1, got {} and {}",
                    context.inputs[0].ToString(), depth));
  }
  std::vector<int64_t> dims(indices.dims().begin(), indices.dims().end());
  dims.push_back(depth);
  return {{*ParseDType(context.attributes.Text("dtype")),
           Shape(std::span<const int64_t>(dims))}};
}

}  // namespace

Output Gather(Output table, Output indices, CallSite site) {
  static const OpDef op{
      .name = "Gather", .infer = &InferGather, .gradient = &GatherGradient};
  return table.graph->Add({.op = &op, .inputs = {table, indices}}, site);
}

Output Embedding(Output table, Output ids, CallSite site) {
  return Gather(table, ids, site);
}

Output OneHot(Output indices, int64_t depth, DType dtype, CallSite site) {
  static const OpDef op{.name = "OneHot",
                        .infer = &InferOneHot,
                        .no_gradient_reason = "an index is not differentiable"};
  return indices.graph->Add(
      {.op = &op,
       .inputs = {indices},
       .attributes = {{"depth", depth},
                      {"dtype", std::string(DTypeName(dtype))}}},
      site);
}

}  // namespace replicant::graph
