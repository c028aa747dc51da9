#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/graph/target_info.h"

namespace replicant::graph {

// The unit of compilation: a graph with the outputs and updates of a run.
struct Program {
  std::unique_ptr<Graph> graph;
  // Tensors that the caller reads after a run, in the caller's order.
  std::vector<Output> outputs;
  // First outputs of the nodes that run for the variables they write.
  std::vector<Output> updates;
};

// Copies the part of `graph` that `outputs` and `updates` need.
Program ExtractProgram(const Graph& graph, const std::vector<Output>& outputs,
                       const std::vector<Output>& updates);

// A pass reads a program and builds an equivalent one. Outputs and updates of
// both are bit-equal on the reference backend.
struct Pass {
  std::string_view name;
  std::string_view what;
  Program (*run)(const Program& program, const TargetInfo& target);
};

// All passes in the order in which they run:
//   fold              compute what depends on constants only
//   cse               one node for equal ops on equal inputs, except
//                     StopGradient
//   fuse_epilogue     bias and activation into MatMul, Conv2d; activation into
//                     norms
//   fuse_pixels       NormalizePixels and RandomShift into Conv2d and its
//                     weight gradient
//   fuse_norms        a residual's norm and a max pool into BatchNorm; a sum of
//                     gradients, the residual's and a mask of bits into its
//                     gradient
//   fuse_elementwise  chains of elementwise ops into one program
//   prune             drop nodes that nothing needs any more
const std::vector<Pass>& AllPasses();

// The precision of products and stored tensors. kTF32: see tf32.h; kBF16: see
// autocast.h; kAuto: kBF16 on a target that MultipliesBf16(), otherwise kF32.
enum class Precision { kF32, kTF32, kBF16, kAuto };

// Resolves kAuto.
Precision PrecisionOn(const TargetInfo& target, Precision precision);

struct PassOptions {
  // Names of the passes to skip.
  std::vector<std::string> off;
  // After PrecisionOn(): kTF32 runs AllowTF32() before all passes, kBF16
  // Autocast().
  Precision precision = Precision::kF32;
};

// Runs all passes but those in `options.off`. Throws InvalidArgument, with the
// known names, for an unknown name there.
Program RunPasses(Program program, const TargetInfo& target,
                  const PassOptions& options);

}  // namespace replicant::graph
