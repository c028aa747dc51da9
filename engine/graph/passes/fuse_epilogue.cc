// Moves a bias and the activation after it into the op that they follow.
//
// For each root (MatMul, Conv2d, LayerNorm, BatchNorm) the pass follows the
// single user of the result: first an Add of a bias vector, then a unary op.
// The part of the chain that the target accepts becomes attributes and inputs
// of the root. The fused node stands at the end of the chain, where the bias is
// known. It has the root's dtype, so a node that stores another one ends the
// chain.
#include <set>

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/passes/rewriter.h"

namespace replicant::graph {
namespace {

bool CanTakeBias(const Node& node) {
  return (node.op->name == "MatMul" || node.op->name == "Conv2d") &&
         node.inputs.size() == 2 && !node.attributes.Has("activation");
}

bool CanTakeActivation(const Node& node) {
  return (node.op->name == "MatMul" || node.op->name == "Conv2d" ||
          node.op->name == "LayerNorm" || node.op->name == "BatchNorm") &&
         !node.attributes.Has("activation");
}

// Returns the number of the input of `add` that is a bias for `root`: a vector
// over root's last dimension, of f32 or root's dtype. -1 if there is none.
int BiasInput(const Graph& graph, const Node& add, Endpoint root) {
  const ScalarProgram::Instruction* instruction = SingleInstruction(add);
  if (instruction == nullptr || instruction->op != ScalarOp::kAdd) return -1;
  const TensorType& product = graph.type(root);
  if (add.output_type() != product) return -1;
  const Shape columns({product.shape[product.shape.rank() - 1]});
  for (int i = 0; i < 2; ++i) {
    const Endpoint bias = add.inputs[static_cast<size_t>(i)];
    const Endpoint other = add.inputs[static_cast<size_t>(1 - i)];
    const TensorType& type = graph.type(bias);
    if (other == root && bias != root && type.shape == columns &&
        (type.dtype == DType::kF32 || type.dtype == product.dtype)) {
      return i;
    }
  }
  return -1;
}

// Whether the node is a unary op that stores what it reads.
bool IsActivation(const Graph& graph, const Node& node) {
  const ScalarProgram::Instruction* instruction = SingleInstruction(node);
  return instruction != nullptr && ScalarOpArity(instruction->op) == 1 &&
         instruction->op != ScalarOp::kCopy && node.outputs.size() == 1 &&
         node.output_type() == graph.type(node.inputs[0]);
}

class EpilogueFuser {
 public:
  EpilogueFuser(const Program& program, const TargetInfo& target)
      : program_(program),
        graph_(*program.graph),
        target_(target),
        uses_(program),
        order_(*program.graph) {
    for (const Node& node : graph_.nodes()) {
      for (const Endpoint& input : node.inputs) user_[input] = node.id;
    }
  }

  Program Run() {
    for (const Node& node : graph_.nodes()) FindEpilogue(node);
    Rewriter rewriter(graph_);
    for (const Node& node : graph_.nodes()) {
      if (absorbed_.contains(node.id)) continue;
      const auto fusion = fusions_.find(node.id);
      if (fusion == fusions_.end()) {
        rewriter.Copy(node);
      } else {
        Emit(node, fusion->second, rewriter);
      }
    }
    return rewriter.Finish(program_);
  }

 private:
  struct Fusion {
    NodeId root = -1;
    // node -1: none
    Endpoint bias;
    ScalarProgram activation;
  };

  // Returns the only user of the endpoint; null if it has several or is
  // fetched.
  const Node* OnlyUser(Endpoint endpoint) const {
    const auto user = user_.find(endpoint);
    if (user == user_.end() || uses_.of(endpoint) != 1) return nullptr;
    return &graph_.node(user->second);
  }

  // Records the fusion of `root` with its bias and activation, if any. The
  // fused node takes the place of the chain's last node: the bias may have been
  // added to the graph after the root.
  void FindEpilogue(const Node& root) {
    Fusion fusion{.root = root.id};
    Endpoint end{root.id, 0};
    std::vector<NodeId> chain = {root.id};
    if (CanTakeBias(root) && target_.CanFuseBias(graph_, root)) {
      const Node* add = OnlyUser(end);
      const int bias = add == nullptr ? -1 : BiasInput(graph_, *add, end);
      if (bias >= 0 && order_.MayJoin(root, *add)) {
        fusion.bias = add->inputs[static_cast<size_t>(bias)];
        end = {add->id, 0};
        chain.push_back(add->id);
      }
    }
    if (CanTakeActivation(root)) {
      const Node* user = OnlyUser(end);
      if (user != nullptr && IsActivation(graph_, *user) &&
          order_.MayJoin(root, *user)) {
        const ScalarProgram& activation = user->attributes.Program("program");
        // the root as it will be: what comes behind may depend on a bias
        Node with_bias = root;
        if (fusion.bias.node >= 0) with_bias.inputs.push_back(fusion.bias);
        if (target_.CanFuseActivation(graph_, with_bias, activation)) {
          fusion.activation = activation;
          chain.push_back(user->id);
        }
      }
    }
    if (chain.size() == 1) return;
    // a root with more outputs (a norm's statistics) keeps its place: they may
    // be used before the chain's end
    const bool stays = root.outputs.size() > 1;
    const NodeId place = stays ? root.id : chain.back();
    for (const NodeId id : chain) {
      if (id != place) absorbed_.insert(id);
    }
    fusions_[place] = fusion;
    ends_[place] = {chain.back(), 0};
  }

  void Emit(const Node& node, const Fusion& fusion, Rewriter& rewriter) {
    const Node& root = graph_.node(fusion.root);
    Graph::NodeSpec spec{.op = root.op,
                         .inputs = rewriter.MappedInputs(root),
                         .attributes = root.attributes,
                         .updates = root.updates,
                         .name = root.name};
    if (fusion.bias.node >= 0) {
      spec.inputs.push_back(rewriter.Mapped(fusion.bias));
    }
    if (!fusion.activation.instructions.empty()) {
      spec.attributes.Set("activation", fusion.activation);
    }
    const Output first = rewriter.Replace(root, std::move(spec));
    rewriter.Map(ends_[node.id], first);
  }

  const Program& program_;
  const Graph& graph_;
  const TargetInfo& target_;
  UseCounts uses_;
  VersionOrder order_;
  std::map<Endpoint, NodeId> user_;
  // by the node in whose place the fused one is put
  std::map<NodeId, Fusion> fusions_;
  std::map<NodeId, Endpoint> ends_;
  std::set<NodeId> absorbed_;
};

}  // namespace

Program FuseEpilogues(const Program& program, const TargetInfo& target) {
  return EpilogueFuser(program, target).Run();
}

}  // namespace replicant::graph
