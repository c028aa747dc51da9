#include "engine/graph/passes/tf32.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "engine/graph/passes/rewriter.h"

namespace replicant::graph {
namespace {

constexpr std::string_view kAttribute = "allows_tf32";

bool IsF32Product(const Graph& graph, const Node& node) {
  constexpr std::array<std::string_view, 5> kProducts = {
      "MatMul", "BatchMatMul", "Conv2d", "Conv2dInputGradient",
      "Conv2dWeightGradient"};
  return std::ranges::find(kProducts, node.op->name) != kProducts.end() &&
         graph.type(node.inputs[0]).dtype == DType::kF32;
}

}  // namespace

Program AllowTF32(const Program& program) {
  const Graph& graph = *program.graph;
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    if (!IsF32Product(graph, node)) {
      rewriter.Copy(node);
      continue;
    }
    Attributes attributes = node.attributes;
    attributes.Set(kAttribute, true);
    rewriter.Replace(node, {.op = node.op,
                            .inputs = rewriter.MappedInputs(node),
                            .attributes = std::move(attributes),
                            .name = node.name});
  }
  return rewriter.Finish(program);
}

bool AllowsTF32(const Node& node) { return node.attributes.Has(kAttribute); }

}  // namespace replicant::graph
