#include "engine/kernels/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "base/check.h"
#include "base/error.h"
#include "engine/kernels/common/host_device.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/flush_subnormals.h"
#include "engine/kernels/cpu/primitive.h"
#include "engine/kernels/cpu/shared_packs.h"
#include "engine/kernels/cpu/tile_program.h"

namespace replicant::kernels {
namespace cpu {
namespace {

// Ops that this folder makes faster than common/. The others stay there: ops on
// indices and random numbers, transposes, slices, pads.
const CpuKernelTable& Table() {
  static const CpuKernelTable table = [] {
    CpuKernelTable rows;
    AddElementwiseKernels(rows);
    AddMatMulKernels(rows);
    AddConvKernels(rows);
    AddPixelConvKernels(rows);
    AddPoolKernels(rows);
    AddNormKernels(rows);
    AddBatchNormKernels(rows);
    AddLinalgKernels(rows);
    AddLossKernels(rows);
    AddOptimizerKernels(rows);
    AddReduceKernels(rows);
    AddShapeKernels(rows);
    AddIndexingKernels(rows);
    for (const std::string_view op :
         {"Gather", "OneHot", "RandomUniform", "RandomNormal", "RandomInt",
          "ArgMax", "Transpose", "Slice", "Pad"}) {
      rows[op] = {};
    }
    return rows;
  }();
  return table;
}

const HostKernelTable& CommonTable() {
  static const HostKernelTable table = [] {
    HostKernelTable rows;
    kernels::AddElementwiseKernels(rows);
    kernels::AddIndexingKernels(rows);
    kernels::AddMomentsKernels(rows);
    kernels::AddReduceKernels(rows);
    kernels::AddShapeKernels(rows);
    return rows;
  }();
  return table;
}

class CpuTarget : public graph::TargetInfo {
 public:
  std::string_view name() const override { return "cpu"; }

  std::string WhyUnsupported(const graph::Graph& graph,
                             const graph::Node& node) const override {
    const auto row = Table().find(node.op->name);
    if (row == Table().end()) return "there is no kernel for this op";
    if (row->second.why_not == nullptr) return {};
    return row->second.why_not({.graph = graph, .node = node});
  }
  bool MultipliesBf16() const override {
    return ComputeTypeOf(DType::kBF16) == dnnl::memory::data_type::bf16;
  }
  bool CanFuseElementwise(const graph::ScalarProgram& program,
                          const graph::TensorType& /*output*/) const override {
    return TileProgram::CanRun(program);
  }
  bool CanFuseBias(const graph::Graph& /*graph*/,
                   const graph::Node& /*root*/) const override {
    return true;
  }
  bool CanFuseActivation(
      const graph::Graph& /*graph*/, const graph::Node& root,
      const graph::ScalarProgram& activation) const override {
    const std::string_view op = root.op->name;
    if (op == "MatMul" || op == "Conv2d") return CanBePostOp(activation);
    return TileProgram::CanRun(activation);
  }
  bool CanFusePixels(const graph::Graph& graph,
                     const graph::Node& conv) const override {
    return ShouldReadPixels({.graph = graph, .node = conv});
  }

  bool Evaluate(const graph::Graph& graph, const graph::Node& node,
                std::span<const TensorView> inputs,
                std::span<const MutableTensorView> outputs) const override {
    // constants are small; ops that only common/ computes wait for the run
    return EvaluateOnHost(CommonTable(), {.graph = graph, .node = node}, inputs,
                          outputs);
  }
};

// Runs a kernel without subnormal numbers.
class FlushedKernel : public Kernel {
 public:
  explicit FlushedKernel(std::unique_ptr<Kernel> kernel)
      : kernel_(std::move(kernel)) {}

  void InputChanged(int input) override { kernel_->InputChanged(input); }
  size_t scratch_size_bytes() const override {
    return kernel_->scratch_size_bytes();
  }
  bool CanShare(int input, int output) const override {
    return kernel_->CanShare(input, output);
  }
  void Bind(const KernelBindings& bindings) override {
    kernel_->Bind(bindings);
  }
  void Launch(Stream& stream) override {
    const FlushSubnormals flush;
    kernel_->Launch(stream);
  }

 private:
  std::unique_ptr<Kernel> kernel_;
};

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(int num_threads) : num_threads_(num_threads) {}

  std::string_view name() const override { return "cpu"; }
  std::string device() const override {
    return fmt::format("cpu, {} thread{}", num_threads_,
                       num_threads_ == 1 ? "" : "s");
  }
  bool is_host_memory() const override { return true; }
  const graph::TargetInfo& target() const override { return target_; }
  std::unique_ptr<Buffer> Allocate(size_t size_bytes) override {
    return AllocateHostBuffer(device(), size_bytes);
  }
  std::unique_ptr<Stream> CreateStream() override { return CreateHostStream(); }
  std::unique_ptr<Event> CreateEvent() override { return CreateHostEvent(); }

  std::unique_ptr<Kernel> CompileKernel(
      const graph::Graph& graph, const graph::Node& node,
      std::span<const InputTraits> inputs) override {
    const std::string why = target_.WhyUnsupported(graph, node);
    if (!why.empty()) Fail(node, why);
    const SingleThreaded single;
    try {
      return std::make_unique<FlushedKernel>(MakeKernel(graph, node, inputs));
    } catch (const dnnl::error& e) {
      Fail(node, fmt::format("oneDNN: {}", e.what()));
    }
  }
  std::unique_ptr<ReplicaGroup> CreateReplicaGroup() override {
    return std::make_unique<SharedPacks>();
  }

 private:
  std::unique_ptr<Kernel> MakeKernel(
      const graph::Graph& graph, const graph::Node& node,
      std::span<const InputTraits> inputs) const {
    const CpuRequest request{
        {.graph = graph, .node = node}, num_threads_, inputs};
    const CpuKernel& row = Table().at(node.op->name);
    if (row.make != nullptr) return row.make(request);
    return MakeCommonKernel(request);
  }

  [[noreturn]] void Fail(const graph::Node& node,
                         const std::string& why) const {
    throw DeviceError(fmt::format("{} cannot run {} '{}' ({}): {}", device(),
                                  node.op->name, node.name,
                                  node.site.ToString(), why));
  }

  int num_threads_;
  CpuTarget target_;
};

}  // namespace

std::unique_ptr<Kernel> MakeCommonKernel(const KernelRequest& request) {
  const auto row = CommonTable().find(request.node.op->name);
  REPLICANT_CHECK(row != CommonTable().end(), "{}", request.node.op->name);
  return MakeHostKernel(request, row->second(request));
}

}  // namespace cpu

std::unique_ptr<Backend> MakeCpuBackend(const BackendOptions& options) {
  if (options.num_threads < 1) {
    throw InvalidArgument(fmt::format("cpu: want at least 1 thread, got {}",
                                      options.num_threads));
  }
  return std::make_unique<cpu::CpuBackend>(options.num_threads);
}

}  // namespace replicant::kernels
