// Gives every tensor the layout that the target prefers. One walk in graph
// order: each node is offered the layouts in which its inputs come, the target
// chooses, and a Relayout node converts an input whose layout differs from the
// choice.
#include "base/check.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/graph/passes/rewriter.h"

namespace replicant::graph {
namespace {

class LayoutChooser {
 public:
  LayoutChooser(const Program& program, const TargetInfo& target)
      : program_(program), target_(target), rewriter_(*program.graph) {}

  Program Run() {
    for (const Node& node : program_.graph->nodes()) Visit(node);
    // fetched outputs are row-major
    for (const Output& output : program_.outputs) {
      const Output mapped = rewriter_.Mapped(output.endpoint());
      rewriter_.Map(output.endpoint(),
                    InLayout(mapped, Layout{}, mapped.producer().site));
    }
    return rewriter_.Finish(program_);
  }

 private:
  // Adds the node with the layouts of the target's choice.
  void Visit(const Node& node) {
    std::vector<Layout> offered;
    const std::vector<Output> inputs = rewriter_.MappedInputs(node);
    offered.reserve(inputs.size());
    for (const Output& input : inputs) offered.push_back(input.type().layout);
    LayoutChoice choice = target_.ChooseLayouts(*program_.graph, node, offered);
    // inputs, variables and updates are always row-major
    if (node.inputs.empty() || !node.updates.empty()) {
      choice = {.inputs = std::vector<Layout>(node.inputs.size()),
                .outputs = std::vector<Layout>(node.outputs.size())};
    }
    REPLICANT_CHECK(choice.inputs.size() == inputs.size() &&
                        choice.outputs.size() == node.outputs.size(),
                    "{} layouts for {} '{}'", choice.inputs.size(),
                    node.op->name, node.name);
    if (node.inputs.empty()) {
      rewriter_.Copy(node);
      return;
    }
    std::vector<Output> wanted;
    for (size_t i = 0; i < inputs.size(); ++i) {
      wanted.push_back(InLayout(inputs[i], choice.inputs[i], node.site));
    }
    rewriter_.Replace(node, {.op = node.op,
                             .inputs = std::move(wanted),
                             .attributes = node.attributes,
                             .updates = node.updates,
                             .name = node.name,
                             .constant = node.constant,
                             .layouts = std::move(choice.outputs)});
  }

  // Returns x in `layout`. All users of a tensor share one Relayout per layout.
  Output InLayout(const Output& x, const Layout& layout, CallSite site) {
    if (x.type().layout == layout) return x;
    const auto [place, is_new] =
        relayouts_.try_emplace({x.endpoint(), layout.tag});
    if (is_new) place->second = Relayout(x, layout, site);
    return place->second;
  }

  const Program& program_;
  const TargetInfo& target_;
  Rewriter rewriter_;
  std::map<std::pair<Endpoint, std::string>, Output> relayouts_;
};

}  // namespace

Program ChooseLayouts(const Program& program, const TargetInfo& target) {
  return LayoutChooser(program, target).Run();
}

}  // namespace replicant::graph
