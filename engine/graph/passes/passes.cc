#include "engine/graph/passes/passes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "engine/graph/passes/autocast.h"
#include "engine/graph/passes/rewriter.h"
#include "engine/graph/passes/tf32.h"

namespace replicant::graph {
namespace {

// Returns is_needed by node: whether an output or an update depends on it.
std::vector<bool> FindNeeded(const Graph& graph,
                             const std::vector<Output>& outputs,
                             const std::vector<Output>& updates) {
  std::vector<bool> is_needed(graph.nodes().size(), false);
  for (const std::vector<Output>* list : {&outputs, &updates}) {
    for (const Output& output : *list) {
      is_needed[static_cast<size_t>(output.node)] = true;
    }
  }
  // users come after their inputs, so one backward walk is enough
  for (size_t id = is_needed.size(); id-- > 0;) {
    if (!is_needed[id]) continue;
    for (const Endpoint& input : graph.node(static_cast<NodeId>(id)).inputs) {
      is_needed[static_cast<size_t>(input.node)] = true;
    }
  }
  return is_needed;
}

std::string KnownNames() {
  std::vector<std::string_view> names;
  for (const Pass& pass : AllPasses()) names.push_back(pass.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Program ExtractProgram(const Graph& graph, const std::vector<Output>& outputs,
                       const std::vector<Output>& updates) {
  for (const std::vector<Output>* list : {&outputs, &updates}) {
    for (const Output& output : *list) {
      REPLICANT_CHECK(output.graph == &graph, "an output of another graph");
    }
  }
  const std::vector<bool> is_needed = FindNeeded(graph, outputs, updates);
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    // inputs stay: the caller may fill them even if nothing needs them
    if (is_needed[static_cast<size_t>(node.id)] || node.op == &InputOp()) {
      rewriter.Copy(node);
    }
  }
  return rewriter.Finish(outputs, updates);
}

Program Prune(const Program& program, const TargetInfo& /*target*/) {
  return ExtractProgram(*program.graph, program.outputs, program.updates);
}

const std::vector<Pass>& AllPasses() {
  static const std::vector<Pass> passes = {
      {"fold", "compute what depends on constants only", &FoldConstants},
      {"cse", "one node for equal ops on equal inputs",
       &EliminateCommonSubexpressions},
      {"fuse_epilogue", "bias and activation into the op before them",
       &FuseEpilogues},
      {"fuse_pixels",
       "conversion of bytes into the convolution that reads them", &FusePixels},
      {"fuse_norms", "passes over memory around batch norms", &FuseNorms},
      {"fuse_elementwise", "chains of elementwise ops into one program",
       &FuseElementwise},
      {"prune", "drop nodes that nothing needs any more", &Prune}};
  return passes;
}

Precision PrecisionOn(const TargetInfo& target, Precision precision) {
  if (precision != Precision::kAuto) return precision;
  return target.MultipliesBf16() ? Precision::kBF16 : Precision::kF32;
}

Program RunPasses(Program program, const TargetInfo& target,
                  const PassOptions& options) {
  for (const std::string& name : options.off) {
    const auto& passes = AllPasses();
    if (std::none_of(passes.begin(), passes.end(),
                     [&](const Pass& pass) { return pass.name == name; })) {
      throw InvalidArgument(fmt::format("RunPasses: no pass '{}'; allowed: {}",
                                        name, KnownNames()));
    }
  }
  const Precision precision = PrecisionOn(target, options.precision);
  if (precision == Precision::kTF32) program = AllowTF32(program);
  if (precision == Precision::kBF16) program = Autocast(program);
  for (const Pass& pass : AllPasses()) {
    if (std::find(options.off.begin(), options.off.end(), pass.name) ==
        options.off.end()) {
      program = pass.run(program, target);
    }
  }
  return program;
}

}  // namespace replicant::graph
