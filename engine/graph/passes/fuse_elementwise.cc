// Joins elementwise nodes into one program, so that the tensors between them
// stay in registers or cache.
//
// Each elementwise node starts a chain: its own program. The nodes are visited
// in graph order, so that the chains of a node's inputs are complete. The node
// absorbs the chain of an input that has no other user, if the joined program
// is still small enough and the target accepts it; otherwise it gives up the
// last candidate and tries again. At the end, the last node of each chain is
// replaced by one node with the joined program, and the absorbed nodes
// disappear.
#include <algorithm>
#include <set>

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/passes/rewriter.h"

namespace replicant::graph {
namespace {

// A fused node to be: its program, and the inputs that the program reads.
struct Chain {
  ScalarProgram program;
  std::vector<Endpoint> inputs;
  Shape shape;
};

// Returns the position of `endpoint` in `inputs`, and appends it if it is new.
int InputNumber(std::vector<Endpoint>& inputs, Endpoint endpoint) {
  const auto place = std::find(inputs.begin(), inputs.end(), endpoint);
  if (place != inputs.end()) return static_cast<int>(place - inputs.begin());
  inputs.push_back(endpoint);
  return static_cast<int>(inputs.size() - 1);
}

// Builds the joined program of several parts. Values are numbered anew: the
// inputs of all parts first, then the instructions of each part in order.
class Joiner {
 public:
  explicit Joiner(const Shape& shape) { chain_.shape = shape; }

  // Adds an input of some part. All inputs come before FinishInputs().
  void AddInput(Endpoint endpoint) { InputNumber(chain_.inputs, endpoint); }
  void FinishInputs() {
    chain_.program.num_inputs = static_cast<int>(chain_.inputs.size());
  }
  int ValueOf(Endpoint endpoint) {
    return InputNumber(chain_.inputs, endpoint);
  }

  // Appends a program that reads the values `arguments`, and returns the number
  // of its result.
  int Append(const ScalarProgram& program, const std::vector<int>& arguments) {
    // values[i]: the new number of the program's value i
    std::vector<int> values = arguments;
    for (ScalarProgram::Instruction instruction : program.instructions) {
      for (int k = 0; k < ScalarOpArity(instruction.op); ++k) {
        int& operand = instruction.operands[static_cast<size_t>(k)];
        operand = values[static_cast<size_t>(operand)];
      }
      for (int k = ScalarOpArity(instruction.op); k < 3; ++k) {
        instruction.operands[static_cast<size_t>(k)] = 0;
      }
      chain_.program.instructions.push_back(instruction);
      values.push_back(chain_.program.num_inputs +
                       static_cast<int>(chain_.program.instructions.size()) -
                       1);
    }
    return values.back();
  }

  Chain Finish() { return std::move(chain_); }

 private:
  Chain chain_;
};

class Fuser {
 public:
  Fuser(const Program& program, const TargetInfo& target)
      : program_(program),
        graph_(*program.graph),
        target_(target),
        uses_(program),
        order_(*program.graph) {}

  Program Run() {
    // in graph order: the chains of a node's inputs are complete
    for (const Node& node : graph_.nodes()) {
      if (node.op->is_elementwise) FindChain(node);
    }
    Rewriter rewriter(graph_);
    for (const Node& node : graph_.nodes()) {
      const auto chain = chains_.find(node.id);
      if (absorbed_.contains(node.id)) continue;
      if (chain == chains_.end() ||
          chain->second.program.instructions.size() == 1) {
        rewriter.Copy(node);
      } else {
        Emit(node, chain->second, rewriter);
      }
    }
    return rewriter.Finish(program_);
  }

 private:
  // An input may be absorbed if `user` is its only user and has its shape;
  // otherwise its elements would be computed more than once.
  bool CanAbsorb(Endpoint input, const Node& user) const {
    const Node& node = graph_.node(input.node);
    const auto chain = chains_.find(input.node);
    return chain != chains_.end() &&
           node.outputs[0].shape == user.outputs[0].shape &&
           uses_.of(input) == 1 && MayJoin(node, user);
  }

  // Whether `node` and all nodes absorbed by it may run as part of `user`.
  bool MayJoin(const Node& node, const Node& user) const {
    if (!order_.MayJoin(node, user)) return false;
    for (const Endpoint& input : node.inputs) {
      if (absorbed_.contains(input.node) &&
          !MayJoin(graph_.node(input.node), user)) {
        return false;
      }
    }
    return true;
  }

  // Makes the longest chain that ends in `node`.
  void FindChain(const Node& node) {
    std::vector<NodeId> absorbed;
    for (const Endpoint& input : node.inputs) {
      if (CanAbsorb(input, node)) absorbed.push_back(input.node);
    }
    // give up candidates, the last first, until the target takes the program
    while (true) {
      Chain chain = Join(node, absorbed);
      const bool is_small =
          chain.program.instructions.size() <=
              static_cast<size_t>(ScalarProgram::kMaxInstructions) &&
          chain.inputs.size() <= static_cast<size_t>(ScalarProgram::kMaxInputs);
      if (absorbed.empty() ||
          (is_small &&
           target_.CanFuseElementwise(chain.program, node.outputs[0]))) {
        chains_[node.id] = std::move(chain);
        absorbed_.insert(absorbed.begin(), absorbed.end());
        return;
      }
      absorbed.pop_back();
    }
  }

  // The chain of `node` behind the chains of the inputs `absorbed`.
  Chain Join(const Node& node, const std::vector<NodeId>& absorbed) {
    const auto is_absorbed = [&](Endpoint input) {
      return std::find(absorbed.begin(), absorbed.end(), input.node) !=
             absorbed.end();
    };
    // number the inputs of all parts
    Joiner joiner(node.outputs[0].shape);
    for (const Endpoint& input : node.inputs) {
      if (!is_absorbed(input)) {
        joiner.AddInput(input);
        continue;
      }
      for (const Endpoint& inner : chains_[input.node].inputs) {
        joiner.AddInput(inner);
      }
    }
    joiner.FinishInputs();

    // append the absorbed chains, then the node's own program on their results
    std::vector<int> arguments;
    for (const Endpoint& input : node.inputs) {
      if (!is_absorbed(input)) {
        arguments.push_back(joiner.ValueOf(input));
        continue;
      }
      const Chain& inner = chains_[input.node];
      std::vector<int> inner_arguments;
      for (const Endpoint& endpoint : inner.inputs) {
        inner_arguments.push_back(joiner.ValueOf(endpoint));
      }
      arguments.push_back(joiner.Append(inner.program, inner_arguments));
    }
    joiner.Append(node.attributes.Program("program"), arguments);
    return joiner.Finish();
  }

  void Emit(const Node& node, const Chain& chain, Rewriter& rewriter) {
    std::vector<Output> inputs;
    for (const Endpoint& input : chain.inputs) {
      inputs.push_back(rewriter.Mapped(input));
    }
    const auto dims = chain.shape.dims();
    rewriter.Replace(
        node, {.op = &FusedElementwiseOp(),
               .inputs = std::move(inputs),
               .attributes = {{"program", chain.program},
                              {"shape",
                               std::vector<int64_t>(dims.begin(), dims.end())}},
               .name = node.name});
  }

  const Program& program_;
  const Graph& graph_;
  const TargetInfo& target_;
  UseCounts uses_;
  VersionOrder order_;
  std::map<NodeId, Chain> chains_;
  std::set<NodeId> absorbed_;
};

}  // namespace

Program FuseElementwise(const Program& program, const TargetInfo& target) {
  return Fuser(program, target).Run();
}

}  // namespace replicant::graph
