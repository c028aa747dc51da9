#include "engine/kernels/reference/reference_backend.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/error.h"
#include "engine/kernels/common/host_device.h"
#include "engine/kernels/reference/reference_kernels.h"

namespace replicant::kernels {
namespace {

const HostKernelTable& Table() {
  static const HostKernelTable table = [] {
    HostKernelTable rows;
    AddElementwiseKernels(rows);
    AddIndexingKernels(rows);
    AddMomentsKernels(rows);
    AddReduceKernels(rows);
    AddShapeKernels(rows);
    reference::AddMatMulKernels(rows);
    reference::AddConvKernels(rows);
    reference::AddPoolKernels(rows);
    reference::AddNormKernels(rows);
    reference::AddLinalgKernels(rows);
    reference::AddLossKernels(rows);
    reference::AddOptimizerKernels(rows);
    return rows;
  }();
  return table;
}

MakeRunFunction FindKernel(const graph::Node& node) {
  const auto row = Table().find(node.op->name);
  return row == Table().end() ? nullptr : row->second;
}

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
  bool CanFusePixels(const graph::Graph& /*graph*/,
                     const graph::Node& /*conv*/) const override {
    return true;
  }

  bool CanFuseBatchNorm(const graph::Graph& /*graph*/,
                        const graph::Node& /*norm*/) const override {
    return true;
  }

  bool Evaluate(const graph::Graph& graph, const graph::Node& node,
                std::span<const TensorView> inputs,
                std::span<const MutableTensorView> outputs) const override {
    return EvaluateOnHost(Table(), {.graph = graph, .node = node}, inputs,
                          outputs);
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
    const graph::Graph& graph, const graph::Node& node,
    std::span<const InputTraits> /*inputs*/) {
  const std::string why = target_->WhyUnsupported(graph, node);
  if (!why.empty()) {
    throw DeviceError(fmt::format("{} cannot run {} '{}' ({}): {}", device(),
                                  node.op->name, node.name,
                                  node.site.ToString(), why));
  }
  const KernelRequest request{.graph = graph, .node = node};
  return MakeHostKernel(request, FindKernel(node)(request));
}

}  // namespace replicant::kernels
