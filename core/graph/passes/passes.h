#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/target_info.h"

namespace replicant::graph {

// A graph with what a run must give or do: what a compiler works on.
struct Program {
  std::unique_ptr<Graph> graph;
  // What the caller reads after a run, in his order.
  std::vector<Output> outputs;
  // Nodes that are run for what they write (their first outputs).
  std::vector<Output> updates;
};

// Copies what `outputs` and `updates` of `graph` need and nothing else.
Program ExtractProgram(const Graph& graph, const std::vector<Output>& outputs,
                       const std::vector<Output>& updates);

// The first output of every node of `graph` that writes a variable.
std::vector<Output> AllUpdates(Graph& graph);

// A pass reads a program and builds an equivalent one: same outputs and
// updates, bit for bit where both run on the reference backend.
struct Pass {
  std::string_view name;
  std::string_view what;
  Program (*run)(const Program& program, const TargetInfo& target);
};

// All passes in the order in which they run:
//   fold              compute what depends on constants only
//   cse               one node for equal ops on equal inputs, none for
//                     StopGradient
//   fuse_epilogue     bias and activation into MatMul, Conv2d; activation into
//                     norms
//   fuse_pixels       NormalizePixels and RandomShift into Conv2d and its
//                     weight gradient
//   fuse_elementwise  chains of elementwise ops into one program
//   layout            the target's layouts, with Relayout nodes between
//   prune             drop what is not needed any more
const std::vector<Pass>& AllPasses();

// In what a program multiplies and keeps its tensors: see autocast.h.
enum class Precision { kF32, kBF16 };

struct PassOptions {
  // Names of passes not to run.
  std::vector<std::string> off;
  // Not f32: Autocast() comes before all passes.
  Precision precision = Precision::kF32;
};

// Runs the passes that are on. Throws InvalidArgument for an unknown name in
// `options.off`, naming the known ones.
Program RunPasses(Program program, const TargetInfo& target,
                  const PassOptions& options);

}  // namespace replicant::graph
