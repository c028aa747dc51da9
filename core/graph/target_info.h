#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"

namespace replicant::graph {

// The layouts in which a target wants to run one node.
struct LayoutChoice {
  std::vector<Layout> inputs;
  std::vector<Layout> outputs;
};

// What passes must know of the target that a graph is compiled for. Backends
// implement it (core/kernels); the defaults describe a target that fuses
// nothing and keeps every tensor row-major, which is always correct.
//
// Thread-safety: const methods may run concurrently.
class TargetInfo {
 public:
  virtual ~TargetInfo() = default;

  // "cpu".
  virtual std::string_view name() const = 0;

  // Empty if the target can run `node`; otherwise why not, as the end of the
  // sentence "cpu cannot run Conv2d 'x': ...".
  virtual std::string WhyUnsupported(const Graph& graph,
                                     const Node& node) const = 0;

  // Whether an elementwise node may carry `program`, with this output.
  virtual bool CanFuseElementwise(const ScalarProgram& /*program*/,
                                  const TensorType& /*output*/) const {
    return false;
  }
  // Whether `root` (MatMul or Conv2d) may take a bias vector over its last
  // output dimension as another input.
  virtual bool CanFuseBias(const Graph& /*graph*/, const Node& /*root*/) const {
    return false;
  }
  // Whether `root` (MatMul, Conv2d, or a norm) may apply `activation`, a chain
  // of unary scalar ops, to its first output (attribute "activation").
  virtual bool CanFuseActivation(const Graph& /*graph*/, const Node& /*root*/,
                                 const ScalarProgram& /*activation*/) const {
    return false;
  }

  // Whether `conv` (Conv2d or Conv2dWeightGradient) may make its image, input
  // 0, of bytes as it reads them (core/graph/ops/conv.h, PixelConv2dOp()).
  virtual bool CanFusePixels(const Graph& /*graph*/,
                             const Node& /*conv*/) const {
    return false;
  }

  // The layouts that `node` should have when its inputs come in `offered`
  // ones; Relayout nodes are put where offered and wanted differ. Graph
  // inputs, variables and fetched outputs are row-major whatever this says.
  virtual LayoutChoice ChooseLayouts(const Graph& graph, const Node& node,
                                     std::span<const Layout> offered) const;

  // Bytes that a tensor takes, padding of its layout included.
  virtual size_t SizeBytes(const TensorType& type) const;

  // Computes a node whose inputs are constants, while compiling. Returns false
  // if the target cannot do that for this node; nothing is written then.
  virtual bool Evaluate(const Graph& /*graph*/, const Node& /*node*/,
                        std::span<const TensorView> /*inputs*/,
                        std::span<const MutableTensorView> /*outputs*/) const {
    return false;
  }
};

}  // namespace replicant::graph
