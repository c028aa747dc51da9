// Joins elementwise nodes into one program, so that what passes between them
// stays in registers or cache.
#include <algorithm>
#include <set>

#include "core/graph/ops/elementwise.h"
#include "core/graph/passes/rewriter.h"

namespace replicant::graph {
namespace {

// An elementwise node as it will be: a program and what it reads.
struct Chain {
  ScalarProgram program;
  std::vector<Endpoint> inputs;
  Shape shape;
};

int InputNumber(std::vector<Endpoint>& inputs, Endpoint endpoint) {
  const auto place = std::find(inputs.begin(), inputs.end(), endpoint);
  if (place != inputs.end()) return static_cast<int>(place - inputs.begin());
  inputs.push_back(endpoint);
  return static_cast<int>(inputs.size() - 1);
}

// Puts the chains of some inputs in front of `node`'s own program. Values are
// numbered anew: inputs first, then the instructions of each part.
class Joiner {
 public:
  explicit Joiner(const Shape& shape) { chain_.shape = shape; }

  // Numbers the inputs of all parts before any instruction is.
  void AddInput(Endpoint endpoint) { InputNumber(chain_.inputs, endpoint); }
  void FinishInputs() {
    chain_.program.num_inputs = static_cast<int>(chain_.inputs.size());
  }
  int ValueOf(Endpoint endpoint) {
    return InputNumber(chain_.inputs, endpoint);
  }

  // Appends a program whose inputs are these values; returns its result's.
  int Append(const ScalarProgram& program, const std::vector<int>& arguments) {
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
    // chains are found in order, so that an input's chain is known already
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
  // An input joins if only this node uses it, and at this node's shape: else
  // it would be computed more than once.
  bool CanAbsorb(Endpoint input, const Node& user) const {
    const Node& node = graph_.node(input.node);
    const auto chain = chains_.find(input.node);
    return chain != chains_.end() &&
           node.outputs[0].shape == user.outputs[0].shape &&
           uses_.of(input) == 1 && MayJoin(node, user);
  }

  // What was absorbed by `node` moves on with it.
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

  void FindChain(const Node& node) {
    std::vector<NodeId> absorbed;
    for (const Endpoint& input : node.inputs) {
      if (CanAbsorb(input, node)) absorbed.push_back(input.node);
    }
    // drop inputs, the last first, until the target takes the program
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

  Chain Join(const Node& node, const std::vector<NodeId>& absorbed) {
    const auto is_absorbed = [&](Endpoint input) {
      return std::find(absorbed.begin(), absorbed.end(), input.node) !=
             absorbed.end();
    };
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
