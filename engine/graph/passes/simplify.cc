// Passes that remove needless work: constant folding and common subexpressions.
#include <vector>

#include "engine/graph/passes/rewriter.h"

namespace replicant::graph {
namespace {

// Limit of a folded constant, because a broadcast may be far larger than its
// input.
constexpr int64_t kMaxFoldedElements = 1 << 20;

bool IsFoldable(const Node& node, const std::vector<Output>& inputs) {
  if (!node.op->is_pure || inputs.empty()) return false;
  for (const Output& input : inputs) {
    if (input.producer().constant == nullptr) return false;
  }
  for (const TensorType& type : node.outputs) {
    if (type.shape.num_elements() > kMaxFoldedElements) return false;
  }
  return true;
}

// Computes the node and maps its outputs to constants. Returns false if the
// target cannot.
bool Fold(const Node& node, const std::vector<Output>& inputs,
          const TargetInfo& target, Rewriter& rewriter) {
  std::vector<TensorView> values;
  values.reserve(inputs.size());
  for (const Output& input : inputs) {
    values.push_back(input.producer().constant->view());
  }
  std::vector<HostTensor> results;
  std::vector<MutableTensorView> views;
  results.reserve(node.outputs.size());
  for (const TensorType& type : node.outputs) {
    results.emplace_back(type.dtype, type.shape);
    views.push_back(results.back().mutable_view());
  }
  if (!target.Evaluate(rewriter.source(), node, values, views)) return false;
  for (size_t i = 0; i < results.size(); ++i) {
    rewriter.Map({node.id, static_cast<int32_t>(i)},
                 rewriter.graph().Constant(results[i].view(), node.site));
  }
  return true;
}

bool IsSameConstant(const HostTensor& a, const HostTensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin());
}

// Whether two nodes of the target graph compute the same values.
bool IsSameNode(const Node& a, const Node& b) {
  if (a.op != b.op || a.inputs != b.inputs || !(a.attributes == b.attributes)) {
    return false;
  }
  if (a.constant == nullptr || b.constant == nullptr) {
    return a.constant == b.constant;
  }
  return IsSameConstant(*a.constant, *b.constant);
}

}  // namespace

Program FoldConstants(const Program& program, const TargetInfo& target) {
  Rewriter rewriter(*program.graph);
  for (const Node& node : program.graph->nodes()) {
    // nodes without inputs stay: they are constants already, or filled later
    if (node.inputs.empty()) {
      rewriter.Copy(node);
      continue;
    }
    const std::vector<Output> inputs = rewriter.MappedInputs(node);
    if (!IsFoldable(node, inputs) || !Fold(node, inputs, target, rewriter)) {
      rewriter.Copy(node);
    }
  }
  return rewriter.Finish(program);
}

Program EliminateCommonSubexpressions(const Program& program,
                                      const TargetInfo& /*target*/) {
  Rewriter rewriter(*program.graph);
  // nodes of the target by op and first input, so that few are compared
  std::map<std::pair<const OpDef*, Endpoint>, std::vector<NodeId>> kept;
  for (const Node& node : program.graph->nodes()) {
    // passes run after Gradients(): StopGradient has done its work
    if (node.op->name == "StopGradient") {
      rewriter.Map({node.id, 0}, rewriter.Mapped(node.inputs[0]));
      continue;
    }
    const bool is_constant = node.op == &ConstantOp();
    if (!is_constant && (!node.op->is_pure || !node.updates.empty())) {
      rewriter.Copy(node);
      continue;
    }
    Node wanted = node;
    wanted.inputs.clear();
    for (const Output& input : rewriter.MappedInputs(node)) {
      wanted.inputs.push_back(input.endpoint());
    }
    auto& candidates = kept[{
        node.op, wanted.inputs.empty() ? Endpoint{} : wanted.inputs.front()}];
    bool is_found = false;
    for (const NodeId candidate : candidates) {
      if (!IsSameNode(rewriter.graph().node(candidate), wanted)) continue;
      for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i) {
        rewriter.Map({node.id, i}, rewriter.graph().output({candidate, i}));
      }
      is_found = true;
      break;
    }
    if (!is_found) candidates.push_back(rewriter.Copy(node).node);
  }
  return rewriter.Finish(program);
}

}  // namespace replicant::graph
