#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/export/stablehlo.h"

namespace replicant::exporting {
namespace {

// keys in the order of writing
using Json = nlohmann::ordered_json;

Json TypeOf(DType dtype, const Shape& shape) {
  return {{"dtype", DTypeName(dtype)},
          {"shape", Dims(shape.dims().begin(), shape.dims().end())}};
}

std::string_view NameOf(StableHloArgument::Kind kind) {
  switch (kind) {
    case StableHloArgument::Kind::kVariable:
      return "variable";
    case StableHloArgument::Kind::kInput:
      return "input";
    case StableHloArgument::Kind::kDraw:
      break;
  }
  return "draw";
}

// The variable or input that a scalar of the host is; null if it is computed.
Json SourceOf(const graph::Graph& graph, graph::Endpoint endpoint) {
  const graph::Node& node = graph.node(endpoint.node);
  if (node.op == &graph::VariableOp()) {
    return graph
        .variable(
            static_cast<graph::VariableId>(node.attributes.Int("variable")))
        .name;
  }
  return node.op == &graph::InputOp() ? Json(node.name) : Json(nullptr);
}

// How the host draws, after engine/graph/ops/random.h.
Json DescribeDraw(const graph::Program& draws, size_t index) {
  const graph::Node& node = draws.outputs[index].producer();
  Json draw = {{"op", node.op->name}};
  draw["key"] = fmt::format("{:#018x}",
                            static_cast<uint64_t>(node.attributes.Int("key")));
  draw["first_row"] = node.attributes.Int("first_row");
  for (const char* bound : {"low", "high"}) {
    if (node.attributes.Has(bound)) draw[bound] = node.attributes.Int(bound);
  }
  draw["step"] = SourceOf(*draws.graph, node.inputs[0]);
  if (node.inputs.size() > 1) {
    draw["row_offset"] = SourceOf(*draws.graph, node.inputs[1]);
  }
  return draw;
}

}  // namespace

std::string DescribeStableHlo(const StableHloModule& module) {
  Json arguments = Json::array();
  for (const StableHloArgument& argument : module.arguments) {
    Json entry = {{"kind", NameOf(argument.kind)}, {"name", argument.name}};
    entry.update(TypeOf(argument.dtype, argument.shape));
    entry["per_replica"] = argument.is_per_replica;
    if (argument.aliased_result) {
      entry["aliased_result"] = *argument.aliased_result;
    }
    if (argument.kind == StableHloArgument::Kind::kDraw) {
      entry["draw"] = DescribeDraw(module.draws, argument.draw);
    }
    arguments.push_back(std::move(entry));
  }
  Json results = Json::array();
  for (const StableHloResult& result : module.results) {
    const bool is_variable = result.kind == StableHloResult::Kind::kVariable;
    Json entry = {{"kind", is_variable ? "variable" : "output"},
                  {"name", result.name}};
    entry.update(TypeOf(result.dtype, result.shape));
    entry["per_replica"] = result.is_per_replica;
    results.push_back(std::move(entry));
  }
  const Json description = {{"stablehlo", kStableHloVersion},
                            {"num_replicas", module.num_replicas},
                            {"arguments", std::move(arguments)},
                            {"results", std::move(results)}};
  return description.dump(1) + "\n";
}

}  // namespace replicant::exporting
