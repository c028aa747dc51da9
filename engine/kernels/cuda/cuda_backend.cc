#include "engine/kernels/cuda_backend.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "engine/graph/passes/tf32.h"
#include "engine/kernels/cuda/collectives.h"
#include "engine/kernels/cuda/cuda_kernels.h"
#include "engine/kernels/cuda/device.h"
#include "engine/kernels/cuda/library_backend.h"
#include "engine/kernels/cuda/recorded_graph.h"

namespace replicant::kernels {
namespace cuda {
namespace {

const CudaKernelTable& Table() {
  static const CudaKernelTable table = [] {
    CudaKernelTable rows;
    AddBatchNormKernels(rows);
    AddConvKernels(rows);
    AddElementwiseKernels(rows);
    AddIndexingKernels(rows);
    AddLinalgKernels(rows);
    AddMatMulKernels(rows);
    AddOptimizerKernels(rows);
    AddPoolKernels(rows);
    AddReduceKernels(rows);
    AddRowKernels(rows);
    AddShapeKernels(rows);
    return rows;
  }();
  return table;
}

// Kernels of the host, for constants.
const HostKernelTable& HostTable() {
  static const HostKernelTable table = [] {
    HostKernelTable rows;
    kernels::AddElementwiseKernels(rows);
    kernels::AddIndexingKernels(rows);
    kernels::AddReduceKernels(rows);
    kernels::AddShapeKernels(rows);
    return rows;
  }();
  return table;
}

class CudaTarget : public graph::TargetInfo {
 public:
  explicit CudaTarget(int compute_capability)
      : compute_capability_(compute_capability) {}

  std::string_view name() const override { return "cuda"; }

  std::string WhyUnsupported(const graph::Graph& graph,
                             const graph::Node& node) const override {
    const auto row = Table().find(node.op->name);
    if (row == Table().end()) return "there is no kernel for this op";
    return row->second.why_not({.graph = graph, .node = node});
  }
  bool MultipliesBf16() const override { return compute_capability_ >= 80; }
  bool CanFuseElementwise(const graph::ScalarProgram& /*program*/,
                          const graph::TensorType& /*output*/) const override {
    return true;
  }
  bool CanFuseBias(const graph::Graph& /*graph*/,
                   const graph::Node& root) const override {
    return HasEpilogue(root);
  }
  bool CanFuseActivation(
      const graph::Graph& /*graph*/, const graph::Node& root,
      const graph::ScalarProgram& activation) const override {
    const bool has_bias = root.inputs.size() > 2;
    return HasEpilogue(root) && (has_bias || root.op->name == "MatMul") &&
           activation.instructions.size() == 1 &&
           activation.instructions[0].op == graph::ScalarOp::kRelu;
  }
  bool CanFuseBatchNorm(const graph::Graph& /*graph*/,
                        const graph::Node& /*norm*/) const override {
    return true;
  }

  bool Evaluate(const graph::Graph& graph, const graph::Node& node,
                std::span<const TensorView> inputs,
                std::span<const MutableTensorView> outputs) const override {
    return EvaluateOnHost(HostTable(), {.graph = graph, .node = node}, inputs,
                          outputs);
  }

 private:
  // cuDNN fuses a bias and a following relu into convolutions only on tensor
  // cores, which f32 without TF32 does not use.
  static bool HasEpilogue(const graph::Node& root) {
    return root.op->name == "MatMul" ||
           (root.op->name == "Conv2d" &&
            (root.output_type().dtype == DType::kBF16 ||
             graph::AllowsTF32(root)));
  }

  const int compute_capability_;
};

class CudaBackend : public Backend {
 public:
  CudaBackend(const Libraries& libraries, const BackendOptions& options)
      : device_(std::make_shared<Device>(libraries, options.device_index)),
        has_recordings_(options.has_recordings),
        functions_(device_),
        plans_(device_, options.tuned_plans),
        collectives_(MakeCollectivesOn(device_)),
        target_(device_->compute_capability()) {}

  std::string_view name() const override { return "cuda"; }
  std::string device() const override { return device_->name(); }
  bool is_host_memory() const override { return false; }
  const graph::TargetInfo& target() const override { return target_; }
  std::unique_ptr<Buffer> Allocate(size_t size_bytes) override {
    return AllocateOn(device_, size_bytes);
  }
  std::unique_ptr<Buffer> AllocateHost(size_t size_bytes) override {
    return AllocatePinnedOn(device_, size_bytes);
  }
  std::unique_ptr<Stream> CreateStream() override {
    return CreateStreamOn(device_);
  }
  std::unique_ptr<Event> CreateEvent() override {
    return CreateEventOn(device_);
  }
  std::unique_ptr<Recording> Record(
      Stream& stream, const std::function<void()>& issue) override {
    return has_recordings_ ? RecordOn(device_, stream, issue) : nullptr;
  }
  DeviceCollectives* collectives() override { return collectives_.get(); }

  std::unique_ptr<Kernel> CompileKernel(
      const graph::Graph& graph, const graph::Node& node,
      std::span<const InputTraits> /*inputs*/) override {
    const std::string why = target_.WhyUnsupported(graph, node);
    if (!why.empty()) {
      throw DeviceError(fmt::format("{} cannot run {} '{}' ({}): {}", device(),
                                    node.op->name, node.name,
                                    node.site.ToString(), why));
    }
    const KernelRequest request{.graph = graph, .node = node};
    KernelBuilder builder(device_, functions_, plans_, request);
    Table().at(node.op->name).make(builder);
    return builder.Build();
  }
  void PlanCompiled() override { plans_.Report(); }

 private:
  const std::shared_ptr<const Device> device_;
  const bool has_recordings_;
  FunctionCache functions_;
  PlanTuner plans_;
  const std::unique_ptr<DeviceCollectives> collectives_;
  CudaTarget target_;
};

}  // namespace

std::string TakesAll(const KernelRequest& /*request*/) { return {}; }

std::unique_ptr<Backend> MakeBackendOn(const Libraries& libraries,
                                       const BackendOptions& options) {
  return std::make_unique<CudaBackend>(libraries, options);
}

}  // namespace cuda

std::unique_ptr<Backend> MakeCudaBackend(const BackendOptions& options) {
  cuda::Libraries libraries;
  try {
    libraries = {.driver = cuda::LoadDriver(),
                 .compiler = cuda::LoadNvrtc(),
                 .matmul = cuda::LoadCublasLt(),
                 .convolution = cuda::MakeCudnn(),
                 .nccl = cuda::MakeNccl()};
  } catch (const DeviceError& e) {
    throw DeviceError(
        fmt::format("cuda:{}: {}", options.device_index, e.what()));
  }
  return cuda::MakeBackendOn(libraries, options);
}

int NumCudaDevices() {
  try {
    const std::unique_ptr<cuda::Driver> driver = cuda::LoadDriver();
    int count = 0;
    const bool is_known = driver->Init() == CUDA_SUCCESS &&
                          driver->DeviceGetCount(&count) == CUDA_SUCCESS;
    return is_known ? count : 0;
  } catch (const DeviceError&) {
    return 0;
  }
}

}  // namespace replicant::kernels
