#include "engine/export/stablehlo_draws.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/error.h"
#include "engine/graph/ops/elementwise.h"

namespace replicant::exporting {
namespace {

using graph::Endpoint;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Output;
using graph::VariableId;

VariableId VariableOf(const Node& node) {
  return static_cast<VariableId>(node.attributes.Int("variable"));
}

// Collects the nodes that some draws need, and copies them.
class DrawsExtractor {
 public:
  DrawsExtractor(const Graph& source, const std::vector<bool>& is_needed)
      : source_(source) {
    for (const Node& node : source.nodes()) {
      if (!is_needed[static_cast<size_t>(node.id)]) continue;
      for (const VariableId variable : node.updates) {
        updates_of_[variable].push_back(node.id);
      }
    }
  }

  graph::Program Run(const std::vector<NodeId>& draws) {
    for (const NodeId draw : draws) {
      draw_ = &source_.node(draw);
      wanted_.insert(draw);
      for (const Endpoint input : draw_->inputs) Want(input.node);
    }
    target_ = std::make_unique<Graph>(source_.seed());
    graph::Program program;
    // in the order of the source
    for (const NodeId id : wanted_) {
      const Output first = Copy(source_.node(id));
      if (!source_.node(id).updates.empty()) program.updates.push_back(first);
    }
    for (const NodeId draw : draws) {
      program.outputs.push_back(copies_.at({draw, 0}));
    }
    program.graph = std::move(target_);
    return program;
  }

 private:
  // Adds the node, what it depends on, and what advances a counter.
  void Want(NodeId id) {
    if (!wanted_.insert(id).second) return;
    const Node& node = source_.node(id);
    if (node.op == &graph::VariableOp()) {
      CheckCounter(node);
      for (const NodeId update : updates_of_[VariableOf(node)]) Want(update);
    } else if (!node.inputs.empty() && !node.op->is_elementwise &&
               node.op->name != "Assign") {
      Fail(node);
    }
    for (const Endpoint input : node.inputs) Want(input.node);
  }

  void CheckCounter(const Node& read) const {
    const graph::TensorType& type = read.output_type();
    if (type.shape == Shape({}) && !graph::IsFloating(type.dtype)) return;
    Fail(read);
  }

  [[noreturn]] void Fail(const Node& node) const {
    throw InvalidArgument(fmt::format(
        "{}: {} '{}' has a step that depends on {} '{}' ({}); the host draws "
        "random numbers before the step of a module runs; allowed: counters "
        "of one whole number, inputs, and elementwise ops on them",
        draw_->site.ToString(), draw_->op->name, draw_->name, node.op->name,
        node.name, node.site.ToString()));
  }

  Output Copy(const Node& node) {
    Output first;
    if (node.op == &graph::VariableOp()) {
      first = target_->Read(Declared(VariableOf(node)), node.site);
    } else {
      Graph::NodeSpec spec{.op = node.op,
                           .attributes = node.attributes,
                           .name = node.name,
                           .constant = node.constant};
      for (const Endpoint input : node.inputs) {
        spec.inputs.push_back(copies_.at(input));
      }
      for (const VariableId variable : node.updates) {
        spec.updates.push_back(Declared(variable));
      }
      first = target_->Add(std::move(spec), node.site);
    }
    for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i) {
      copies_[{node.id, i}] = Graph::OutputOf(first, i);
    }
    return first;
  }

  VariableId Declared(VariableId variable) {
    const auto [place, is_new] = variables_.try_emplace(variable, 0);
    if (is_new)
      place->second = target_->AddVariable(source_.variable(variable));
    return place->second;
  }

  const Graph& source_;
  std::map<VariableId, std::vector<NodeId>> updates_of_;
  std::set<NodeId> wanted_;
  const Node* draw_ = nullptr;
  std::unique_ptr<Graph> target_;
  std::map<Endpoint, Output> copies_;
  std::map<VariableId, VariableId> variables_;
};

}  // namespace

bool IsDraw(const Node& node) { return node.attributes.Has("first_row"); }

graph::Program ExtractDraws(const Graph& graph,
                            const std::vector<NodeId>& draws,
                            const std::vector<bool>& is_needed) {
  return DrawsExtractor(graph, is_needed).Run(draws);
}

}  // namespace replicant::exporting
