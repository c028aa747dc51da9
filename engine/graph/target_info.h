#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/graph/graph.h"

namespace replicant::graph {

// Describes the target of a compilation to the passes. Backends implement it
// (engine/kernels). The defaults fuse nothing, which is always correct.
//
// Thread-safety: const methods may run concurrently.
class TargetInfo {
 public:
  virtual ~TargetInfo() = default;

  // "cpu".
  virtual std::string_view name() const = 0;

  // Returns "" if the target can run `node`, otherwise the reason, as the end
  // of the sentence "cpu cannot run Conv2d 'x': ...".
  virtual std::string WhyUnsupported(const Graph& graph,
                                     const Node& node) const = 0;

  // Whether products of bf16 are faster than products of f32, because the
  // processor or device has instructions for them.
  virtual bool MultipliesBf16() const { return false; }

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
  // Whether `root` (MatMul, Conv2d, LayerNorm or BatchNorm) may apply
  // `activation`, one unary scalar op, to its first output (attribute
  // "activation"). `root` has the bias that it takes as its last input.
  virtual bool CanFuseActivation(const Graph& /*graph*/, const Node& /*root*/,
                                 const ScalarProgram& /*activation*/) const {
    return false;
  }

  // Whether `conv` (Conv2d or Conv2dWeightGradient) may convert its image,
  // input 0, from bytes while it reads them (engine/graph/ops/conv.h,
  // PixelConv2dOp()).
  virtual bool CanFusePixels(const Graph& /*graph*/,
                             const Node& /*conv*/) const {
    return false;
  }

  // Whether `norm` may take the forms that save passes over memory
  // (engine/graph/ops/norm.h, pass fuse_norms). `norm` is a BatchNorm or a
  // BatchNormGradient.
  virtual bool CanFuseBatchNorm(const Graph& /*graph*/,
                                const Node& /*norm*/) const {
    return false;
  }

  // Computes a node with constant inputs during compilation. Returns false,
  // with nothing written, if the target cannot.
  virtual bool Evaluate(const Graph& /*graph*/, const Node& /*node*/,
                        std::span<const TensorView> /*inputs*/,
                        std::span<const MutableTensorView> /*outputs*/) const {
    return false;
  }
};

}  // namespace replicant::graph
