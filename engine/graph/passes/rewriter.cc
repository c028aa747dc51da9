#include "engine/graph/passes/rewriter.h"

#include "base/check.h"

namespace replicant::graph {

Rewriter::Rewriter(const Graph& source)
    : source_(source), target_(std::make_unique<Graph>()) {
  target_->CopyDeclarations(source);
}

Output Rewriter::Mapped(Endpoint source) const {
  const auto found = mapped_.find(source);
  REPLICANT_CHECK(found != mapped_.end(), "'{}' was not rewritten",
                  this->source().node(source.node).name);
  return found->second;
}

std::vector<Output> Rewriter::MappedInputs(const Node& node) const {
  std::vector<Output> inputs;
  for (const Endpoint& input : node.inputs) inputs.push_back(Mapped(input));
  return inputs;
}

void Rewriter::Map(Endpoint source, Output target) { mapped_[source] = target; }

Output Rewriter::Copy(const Node& node) {
  const Graph::DeviceScope device(*target_, node.device);
  if (node.op == &VariableOp()) {
    // Read() adds the node and keeps track of versions
    const auto variable =
        static_cast<VariableId>(node.attributes.Int("variable"));
    const Output read = target_->Read(variable, node.site);
    Map({node.id, 0}, read);
    return read;
  }
  return Replace(node, {.op = node.op,
                        .inputs = MappedInputs(node),
                        .attributes = node.attributes,
                        .updates = node.updates,
                        .name = node.name,
                        .constant = node.constant});
}

Output Rewriter::Replace(const Node& node, Graph::NodeSpec spec) {
  const Graph::DeviceScope device(*target_, node.device);
  const Output first = target_->Add(std::move(spec), node.site);
  for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i) {
    Map({node.id, i}, Graph::OutputOf(first, i));
  }
  return first;
}

Program Rewriter::Finish(const std::vector<Output>& outputs,
                         const std::vector<Output>& updates) {
  Program result;
  for (const Output& output : outputs) {
    result.outputs.push_back(Mapped(output.endpoint()));
  }
  for (const Output& update : updates) {
    result.updates.push_back(Mapped(update.endpoint()));
  }
  result.graph = std::move(target_);
  return result;
}

UseCounts::UseCounts(const Program& program) {
  for (const Node& node : program.graph->nodes()) {
    for (const Endpoint& input : node.inputs) ++counts[input];
  }
  for (const Output& output : program.outputs) ++counts[output.endpoint()];
}

int UseCounts::of(Endpoint endpoint) const {
  const auto found = counts.find(endpoint);
  return found == counts.end() ? 0 : found->second;
}

VersionOrder::VersionOrder(const Graph& graph)
    : follows_update_(graph.nodes().size(), false) {
  for (const Node& node : graph.nodes()) {
    bool follows = !node.updates.empty();
    for (const Endpoint& input : node.inputs) {
      follows = follows || follows_update_[static_cast<size_t>(input.node)];
    }
    follows_update_[static_cast<size_t>(node.id)] = follows;
    for (size_t i = 0; i < node.updates.size(); ++i) {
      replaced_.insert(node.inputs[i]);
    }
  }
}

bool VersionOrder::MayJoin(const Node& node, const Node& later) const {
  if (!follows_update_[static_cast<size_t>(later.id)]) return true;
  for (const Endpoint& input : node.inputs) {
    if (replaced_.contains(input)) return false;
  }
  return true;
}

const ScalarProgram::Instruction* SingleInstruction(const Node& node) {
  if (!node.op->is_elementwise) return nullptr;
  const ScalarProgram& program = node.attributes.Program("program");
  return program.instructions.size() == 1 ? &program.instructions[0] : nullptr;
}

}  // namespace replicant::graph
