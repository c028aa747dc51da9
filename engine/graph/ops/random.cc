#include "engine/graph/ops/random.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/error.h"

namespace replicant::graph {
namespace {

std::vector<TensorType> InferRandom(const InferContext& context) {
  const Shape shape(std::span(context.attributes.Ints("shape")));
  if (shape.rank() < 1) {
    context.Fail("want a shape of at least one dimension, got []");
  }
  if (context.inputs[0] != TensorType{DType::kI64, Shape({})}) {
    context.Fail(fmt::format("want a scalar i64 as step, got {}",
                             context.inputs[0].ToString()));
  }
  if (context.num_inputs() > 1 &&
      context.inputs[1] != TensorType{DType::kI64, Shape({})}) {
    context.Fail(fmt::format("want a scalar i64 as row offset, got {}",
                             context.inputs[1].ToString()));
  }
  return {{*ParseDType(context.attributes.Text("dtype")), shape}};
}

Output AddRandom(const OpDef& op, const RandomOptions& options, DType dtype,
                 const Shape& shape, const Attributes& more) {
  Graph& graph = *options.step.graph;
  if (options.name.empty()) {
    throw InvalidArgument(
        fmt::format("{}: {}: the name is empty; hint: it names the stream of "
                    "random numbers",
                    graph.site().ToString(), op.name));
  }
  const std::string stream = graph.ReserveStreamName(options.name);
  RandomStream random(graph.seed(), stream);
  Attributes attributes = more;
  attributes.Set("key", static_cast<int64_t>(random()));
  attributes.Set("first_row", options.first_row);
  attributes.Set("dtype", std::string(DTypeName(dtype)));
  attributes.Set(
      "shape", std::vector<int64_t>(shape.dims().begin(), shape.dims().end()));
  std::vector<Output> inputs = {options.step};
  if (options.row_offset.is_valid()) inputs.push_back(options.row_offset);
  return graph.Add({.op = &op,
                    .inputs = std::move(inputs),
                    .attributes = std::move(attributes),
                    .name = options.name});
}

constexpr std::string_view kNoFloatingInput = "it has no floating input";

}  // namespace

Output RandomUniform(const RandomOptions& options, DType dtype,
                     const Shape& shape, CallSite site) {
  const Graph::SiteScope scope(options.step, site);
  static const OpDef op{.name = "RandomUniform",
                        .infer = &InferRandom,
                        .no_gradient_reason = kNoFloatingInput};
  return AddRandom(op, options, dtype, shape, {});
}

Output RandomNormal(const RandomOptions& options, DType dtype,
                    const Shape& shape, CallSite site) {
  const Graph::SiteScope scope(options.step, site);
  static const OpDef op{.name = "RandomNormal",
                        .infer = &InferRandom,
                        .no_gradient_reason = kNoFloatingInput};
  return AddRandom(op, options, dtype, shape, {});
}

Output RandomInt(const RandomOptions& options, const Shape& shape, int64_t low,
                 int64_t high, CallSite site) {
  const Graph::SiteScope scope(options.step, site);
  static const OpDef op{.name = "RandomInt",
                        .infer = &InferRandom,
                        .no_gradient_reason = kNoFloatingInput};
  if (low >= high || low < INT32_MIN || high > INT32_MAX) {
    throw InvalidArgument(
        fmt::format("{}: RandomInt: want low < high within i32, got {} and {}",
                    options.step.graph->site().ToString(), low, high));
  }
  return AddRandom(op, options, DType::kI32, shape,
                   {{"low", low}, {"high", high}});
}

}  // namespace replicant::graph
