#include "core/kernels/reference/reference_backend.h"

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/kernels/common/host_device.h"
#include "core/kernels/reference/kernel_table.h"

namespace replicant::kernels {
namespace {

using reference::KernelTable;
using reference::MakeFunction;
using reference::Operands;
using reference::RunFunction;

const KernelTable& Table() {
  static const KernelTable table = [] {
    KernelTable rows;
    reference::AddElementwiseKernels(rows);
    reference::AddMatMulKernels(rows);
    reference::AddConvKernels(rows);
    reference::AddPoolKernels(rows);
    reference::AddNormKernels(rows);
    reference::AddLossKernels(rows);
    reference::AddIndexingKernels(rows);
    reference::AddOptimizerKernels(rows);
    reference::AddReduceKernels(rows);
    reference::AddShapeKernels(rows);
    return rows;
  }();
  return table;
}

MakeFunction FindKernel(const graph::Node& node) {
  const auto row = Table().find(node.op->name);
  return row == Table().end() ? nullptr : row->second;
}

// Whether output 0 may overwrite input `input`: each element of the result
// must depend on the same element of the input only.
bool IsElementByElement(const graph::Graph& graph, const graph::Node& node,
                        int input) {
  const graph::TensorType& from =
      graph.type(node.inputs[static_cast<size_t>(input)]);
  const bool is_copy = node.op->name == "Reshape" ||
                       node.op->name == "StopGradient" ||
                       node.op->name == "Identity";
  return is_copy ||
         (node.op->is_elementwise && from.shape == node.outputs[0].shape &&
          DTypeSize(from.dtype) == DTypeSize(node.outputs[0].dtype));
}

class ReferenceKernel : public Kernel {
 public:
  ReferenceKernel(const graph::Graph& graph, const graph::Node& node,
                  MakeFunction make)
      : run_(make({.graph = graph, .node = node})) {
    for (int i = 0; i < static_cast<int>(node.inputs.size()); ++i) {
      can_share_.push_back(IsElementByElement(graph, node, i));
    }
  }

  bool CanShare(int input, int output) const override {
    return output == 0 && can_share_[static_cast<size_t>(input)];
  }
  void Bind(const KernelBindings& bindings) override {
    operands_ = {.inputs = bindings.inputs, .outputs = bindings.outputs};
  }
  void Launch(Stream& /*stream*/) override { run_(operands_); }

 private:
  RunFunction run_;
  std::vector<bool> can_share_;
  Operands operands_;
};

class ReferenceTarget : public graph::TargetInfo {
 public:
  std::string_view name() const override { return "reference"; }

  std::string WhyUnsupported(const graph::Graph& /*graph*/,
                             const graph::Node& node) const override {
    if (FindKernel(node) == nullptr) return "there is no kernel for this op";
    return {};
  }
  bool CanFuseElementwise(const graph::ScalarProgram& /*program*/,
                          const graph::TensorType& /*output*/) const override {
    return true;
  }
  bool CanFuseBias(const graph::Graph& /*graph*/,
                   const graph::Node& /*root*/) const override {
    return true;
  }
  bool CanFuseActivation(
      const graph::Graph& /*graph*/, const graph::Node& /*root*/,
      const graph::ScalarProgram& /*activation*/) const override {
    return true;
  }

  bool Evaluate(const graph::Graph& graph, const graph::Node& node,
                std::span<const TensorView> inputs,
                std::span<const MutableTensorView> outputs) const override {
    const MakeFunction make = FindKernel(node);
    if (make == nullptr) return false;
    Operands operands;
    for (const TensorView& input : inputs) {
      operands.inputs.push_back(input.data());
    }
    for (const MutableTensorView& output : outputs) {
      operands.outputs.push_back(output.data());
    }
    make({.graph = graph, .node = node})(operands);
    return true;
  }
};

}  // namespace

ReferenceBackend::ReferenceBackend()
    : target_(std::make_unique<ReferenceTarget>()) {}

ReferenceBackend::~ReferenceBackend() = default;

std::unique_ptr<Buffer> ReferenceBackend::Allocate(size_t size_bytes) {
  return AllocateHostBuffer(device(), size_bytes);
}

std::unique_ptr<Stream> ReferenceBackend::CreateStream() {
  return CreateHostStream();
}

std::unique_ptr<Event> ReferenceBackend::CreateEvent() {
  return CreateHostEvent();
}

std::unique_ptr<Kernel> ReferenceBackend::CompileKernel(
    const graph::Graph& graph, const graph::Node& node) {
  const std::string why = target_->WhyUnsupported(graph, node);
  if (!why.empty()) {
    throw DeviceError(fmt::format("{} cannot run {} '{}' ({}): {}", device(),
                                  node.op->name, node.name,
                                  node.site.ToString(), why));
  }
  return std::make_unique<ReferenceKernel>(graph, node, FindKernel(node));
}

}  // namespace replicant::kernels
