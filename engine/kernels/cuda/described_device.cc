// A device that is only described: kernels are compiled for it, to be read.
// Launches are accepted and dropped.
#include "engine/kernels/cuda/described_device.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "engine/kernels/cuda/library_backend.h"
#include "engine/kernels/cuda_backend.h"

namespace replicant::kernels {
namespace cuda {
namespace {

// Hands out addresses of device memory without memory. Copies to it are
// dropped, and copies from it are zeros.
class DescribedDriver : public Driver {
 public:
  CUresult Init() override { return CUDA_SUCCESS; }
  CUresult DriverGetVersion(int* version) override {
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
  }
  CUresult DeviceGetCount(int* count) override {
    *count = 1;
    return CUDA_SUCCESS;
  }
  CUresult DeviceGet(CUdevice* device, int index) override {
    *device = index;
    return CUDA_SUCCESS;
  }
  CUresult DeviceGetName(std::string* name, CUdevice /*device*/) override {
    *name = "described device";
    return CUDA_SUCCESS;
  }
  CUresult DeviceGetUuid(std::string* uuid, CUdevice /*device*/) override {
    uuid->assign(16, '\0');
    return CUDA_SUCCESS;
  }
  CUresult DeviceGetAttribute(int* value, CUdevice_attribute attribute,
                              CUdevice /*device*/) override {
    return H100Attribute(value, attribute);
  }
  CUresult DevicePrimaryCtxRetain(CUcontext* /*context*/,
                                  CUdevice /*device*/) override {
    return CUDA_SUCCESS;
  }
  CUresult DevicePrimaryCtxRelease(CUdevice /*device*/) override {
    return CUDA_SUCCESS;
  }
  CUresult CtxSetCurrent(CUcontext /*context*/) override {
    return CUDA_SUCCESS;
  }

  CUresult MemGetInfo(size_t* free_bytes, size_t* total_bytes) override {
    *free_bytes = *total_bytes = size_t{80} << 30;
    return CUDA_SUCCESS;
  }
  CUresult MemAlloc(CUdeviceptr* address, size_t size_bytes) override {
    constexpr size_t kAlignment = 256;
    *address = next_address_;
    next_address_ += (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
    return CUDA_SUCCESS;
  }
  CUresult MemFree(CUdeviceptr /*address*/) override { return CUDA_SUCCESS; }
  CUresult MemcpyHtoDAsync(CUdeviceptr /*to*/, const void* /*from*/,
                           size_t /*size_bytes*/,
                           CUstream /*stream*/) override {
    return CUDA_SUCCESS;
  }
  CUresult MemcpyDtoHAsync(void* to, CUdeviceptr /*from*/, size_t size_bytes,
                           CUstream /*stream*/) override {
    std::memset(to, 0, size_bytes);
    return CUDA_SUCCESS;
  }
  CUresult MemcpyDtoDAsync(CUdeviceptr /*to*/, CUdeviceptr /*from*/,
                           size_t /*size_bytes*/,
                           CUstream /*stream*/) override {
    return CUDA_SUCCESS;
  }
  // the host's memory is there
  CUresult MemHostAlloc(void** address, size_t size_bytes) override {
    *address = std::malloc(size_bytes);
    return *address == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  }
  CUresult MemFreeHost(void* address) override {
    std::free(address);
    return CUDA_SUCCESS;
  }

  CUresult StreamCreate(CUstream* /*stream*/) override { return CUDA_SUCCESS; }
  CUresult StreamDestroy(CUstream /*stream*/) override { return CUDA_SUCCESS; }
  CUresult StreamSynchronize(CUstream /*stream*/) override {
    return CUDA_SUCCESS;
  }
  CUresult StreamWaitEvent(CUstream /*stream*/, CUevent /*event*/) override {
    return CUDA_SUCCESS;
  }
  CUresult EventCreate(CUevent* /*event*/, unsigned /*flags*/) override {
    return CUDA_SUCCESS;
  }
  CUresult EventDestroy(CUevent /*event*/) override { return CUDA_SUCCESS; }
  CUresult EventRecord(CUevent /*event*/, CUstream /*stream*/) override {
    return CUDA_SUCCESS;
  }
  CUresult EventSynchronize(CUevent /*event*/) override { return CUDA_SUCCESS; }

  // no work runs, so none is timed or recorded
  CUresult EventElapsedTime(float* /*time_ms*/, CUevent /*start*/,
                            CUevent /*end*/) override {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUresult StreamBeginCapture(CUstream /*stream*/) override {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUresult StreamEndCapture(CUstream /*stream*/, CUgraph* /*graph*/) override {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUresult GraphDestroy(CUgraph /*graph*/) override {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUresult GraphInstantiate(CUgraphExec* /*executable*/,
                            CUgraph /*graph*/) override {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUresult GraphExecDestroy(CUgraphExec /*executable*/) override {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUresult GraphLaunch(CUgraphExec /*executable*/,
                       CUstream /*stream*/) override {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUresult LaunchKernel(const KernelLaunch& /*launch*/,
                        CUstream /*stream*/) override {
    return CUDA_SUCCESS;
  }

  CUresult ModuleLoadData(CUmodule* /*module*/,
                          const void* /*image*/) override {
    return CUDA_SUCCESS;
  }
  CUresult ModuleUnload(CUmodule /*module*/) override { return CUDA_SUCCESS; }
  CUresult ModuleGetFunction(CUfunction* /*function*/, CUmodule /*module*/,
                             const char* /*name*/) override {
    return CUDA_SUCCESS;
  }
  std::string DescribeError(CUresult /*error*/) override {
    return "the device is only described, it does not exist";
  }

 private:
  CUdeviceptr next_address_ = CUdeviceptr{1} << 40;
};

class NoCompiler : public SourceCompiler {
 public:
  std::string Compile(const std::string& /*source*/,
                      int /*compute_capability*/) override {
    return {};
  }
};

// A plan that is not run.
template <typename Base, typename Operands>
class NoPlan : public Base {
 public:
  size_t workspace_size_bytes() const override { return 0; }
  void Launch(const Operands& /*operands*/, CUstream /*stream*/) override {}
};

class NoMatMul : public MatMulLibrary {
 public:
  std::unique_ptr<MatMulPlan> Plan(const MatMulProblem& /*problem*/) override {
    return std::make_unique<NoPlan<MatMulPlan, MatMulOperands>>();
  }
};

class NoConvolution : public ConvolutionLibrary {
 public:
  std::unique_ptr<ConvolutionPlan> Plan(
      const ConvolutionProblem& /*problem*/) override {
    return std::make_unique<NoPlan<ConvolutionPlan, ConvolutionOperands>>();
  }
};

}  // namespace

CUresult H100Attribute(int* value, CUdevice_attribute attribute) {
  static const std::map<CUdevice_attribute, int> values = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132}};
  const auto found = values.find(attribute);
  if (found == values.end()) return CUDA_ERROR_INVALID_VALUE;
  *value = found->second;
  return CUDA_SUCCESS;
}

std::unique_ptr<Backend> MakeDescribedBackendOn(
    std::shared_ptr<ConvolutionLibrary> convolution) {
  return MakeBackendOn({.driver = std::make_shared<DescribedDriver>(),
                        .compiler = std::make_shared<NoCompiler>(),
                        .matmul = std::make_shared<NoMatMul>(),
                        .convolution = std::move(convolution),
                        // for several replicas
                        .nccl = nullptr},
                       {.has_recordings = false});
}

}  // namespace cuda

std::unique_ptr<Backend> MakeDescribedCudaBackend() {
  return cuda::MakeDescribedBackendOn(std::make_shared<cuda::NoConvolution>());
}

}  // namespace replicant::kernels
