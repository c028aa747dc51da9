#include "engine/graph/print.h"

#include <fmt/format.h>

namespace replicant::graph {
namespace {

std::string NameOf(const Graph& graph, Endpoint endpoint) {
  const Node& node = graph.node(endpoint.node);
  return node.outputs.size() == 1
             ? node.name
             : fmt::format("{}:{}", node.name, endpoint.index);
}

std::string TypesOf(const Node& node) {
  std::string text;
  for (const TensorType& type : node.outputs) {
    text += (text.empty() ? "" : ", ") + type.ToString();
  }
  return text;
}

// Leaves out shape and dtype of inputs and constants, which the type shows.
std::string AttributesOf(const Node& node) {
  return node.inputs.empty() ? std::string() : node.attributes.ToString();
}

// Quotes within a dot string.
std::string Escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

std::string PrintText(const Graph& graph) {
  std::string text;
  for (const Node& node : graph.nodes()) {
    text += fmt::format("{} = {}(", node.name, node.op->name);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      text += (i > 0 ? ", " : "") + NameOf(graph, node.inputs[i]);
    }
    const std::string attributes = AttributesOf(node);
    text += fmt::format("){}{} -> {}\n", attributes.empty() ? "" : " ",
                        attributes, TypesOf(node));
  }
  return text;
}

std::string PrintDot(const Graph& graph) {
  std::string text = "digraph {\n  node [shape=box];\n";
  for (const Node& node : graph.nodes()) {
    const char* style = node.inputs.empty() ? " style=rounded" : "";
    text += fmt::format("  n{} [label=\"{}\\n{}\\n{}\"{}];\n", node.id,
                        Escape(node.name), node.op->name, Escape(TypesOf(node)),
                        style);
    for (const Endpoint& input : node.inputs) {
      text += fmt::format("  n{} -> n{};\n", input.node, node.id);
    }
  }
  return text + "}\n";
}

}  // namespace replicant::graph
