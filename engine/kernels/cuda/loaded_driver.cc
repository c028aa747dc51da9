#include <array>
#include <set>

#include "base/mutex.h"
#include "base/shared_library.h"
#include "engine/kernels/cuda/driver.h"

// cuda.h renames some functions to versioned symbols by macros: a name must be
// expanded before it is looked up.
#define REPLICANT_TEXT(name) #name
#define REPLICANT_SYMBOL(name) REPLICANT_TEXT(name)
#define REPLICANT_FIND(name) library_.Find(REPLICANT_SYMBOL(name), &name##_)

namespace replicant::kernels::cuda {
namespace {

class LoadedDriver : public Driver {
 public:
  LoadedDriver()
      : library_("libcuda.so.1",
                 "install the NVIDIA driver, or take the backend cpu") {
    REPLICANT_FIND(cuInit);
    REPLICANT_FIND(cuDriverGetVersion);
    REPLICANT_FIND(cuDeviceGetCount);
    REPLICANT_FIND(cuDeviceGet);
    REPLICANT_FIND(cuDeviceGetName);
    REPLICANT_FIND(cuDeviceGetUuid);
    REPLICANT_FIND(cuDeviceGetAttribute);
    REPLICANT_FIND(cuDevicePrimaryCtxRetain);
    REPLICANT_FIND(cuDevicePrimaryCtxRelease);
    REPLICANT_FIND(cuCtxSetCurrent);
    REPLICANT_FIND(cuMemGetInfo);
    REPLICANT_FIND(cuMemAlloc);
    REPLICANT_FIND(cuMemFree);
    REPLICANT_FIND(cuMemcpyHtoDAsync);
    REPLICANT_FIND(cuMemcpyDtoHAsync);
    REPLICANT_FIND(cuMemcpyDtoDAsync);
    REPLICANT_FIND(cuMemHostAlloc);
    REPLICANT_FIND(cuMemFreeHost);
    REPLICANT_FIND(cuStreamCreate);
    REPLICANT_FIND(cuStreamDestroy);
    REPLICANT_FIND(cuStreamSynchronize);
    REPLICANT_FIND(cuStreamWaitEvent);
    REPLICANT_FIND(cuEventCreate);
    REPLICANT_FIND(cuEventDestroy);
    REPLICANT_FIND(cuEventRecord);
    REPLICANT_FIND(cuEventSynchronize);
    // the name before CUDA 12.8: for an older driver, its version is the error
    library_.Find("cuEventElapsedTime", &cuEventElapsedTime_);
    REPLICANT_FIND(cuStreamBeginCapture);
    REPLICANT_FIND(cuStreamEndCapture);
    REPLICANT_FIND(cuGraphDestroy);
    REPLICANT_FIND(cuGraphInstantiate);
    REPLICANT_FIND(cuGraphExecDestroy);
    REPLICANT_FIND(cuGraphLaunch);
    REPLICANT_FIND(cuModuleLoadData);
    REPLICANT_FIND(cuModuleUnload);
    REPLICANT_FIND(cuModuleGetFunction);
    REPLICANT_FIND(cuLaunchKernel);
    REPLICANT_FIND(cuGetErrorName);
    REPLICANT_FIND(cuGetErrorString);
  }

  CUresult Init() override { return cuInit_(0); }
  CUresult DriverGetVersion(int* version) override {
    return cuDriverGetVersion_(version);
  }
  CUresult DeviceGetCount(int* count) override {
    return cuDeviceGetCount_(count);
  }
  CUresult DeviceGet(CUdevice* device, int index) override {
    return cuDeviceGet_(device, index);
  }
  CUresult DeviceGetName(std::string* name, CUdevice device) override {
    std::array<char, 256> text{};
    const CUresult result =
        cuDeviceGetName_(text.data(), static_cast<int>(text.size()), device);
    *name = text.data();
    return result;
  }
  CUresult DeviceGetUuid(std::string* uuid, CUdevice device) override {
    CUuuid bytes{};
    const CUresult result = cuDeviceGetUuid_(&bytes, device);
    uuid->assign(bytes.bytes, sizeof bytes.bytes);
    return result;
  }
  CUresult DeviceGetAttribute(int* value, CUdevice_attribute attribute,
                              CUdevice device) override {
    return cuDeviceGetAttribute_(value, attribute, device);
  }
  CUresult DevicePrimaryCtxRetain(CUcontext* context,
                                  CUdevice device) override {
    const CUresult result = cuDevicePrimaryCtxRetain_(context, device);
    return result == CUDA_SUCCESS ? KeepContext(device) : result;
  }
  CUresult DevicePrimaryCtxRelease(CUdevice device) override {
    return cuDevicePrimaryCtxRelease_(device);
  }
  CUresult CtxSetCurrent(CUcontext context) override {
    return cuCtxSetCurrent_(context);
  }
  CUresult MemGetInfo(size_t* free_bytes, size_t* total_bytes) override {
    return cuMemGetInfo_(free_bytes, total_bytes);
  }
  CUresult MemAlloc(CUdeviceptr* address, size_t size_bytes) override {
    return cuMemAlloc_(address, size_bytes);
  }
  CUresult MemFree(CUdeviceptr address) override { return cuMemFree_(address); }
  CUresult MemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t size_bytes,
                           CUstream stream) override {
    return cuMemcpyHtoDAsync_(to, from, size_bytes, stream);
  }
  CUresult MemcpyDtoHAsync(void* to, CUdeviceptr from, size_t size_bytes,
                           CUstream stream) override {
    return cuMemcpyDtoHAsync_(to, from, size_bytes, stream);
  }
  CUresult MemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size_bytes,
                           CUstream stream) override {
    return cuMemcpyDtoDAsync_(to, from, size_bytes, stream);
  }
  CUresult MemHostAlloc(void** address, size_t size_bytes) override {
    return cuMemHostAlloc_(address, size_bytes, CU_MEMHOSTALLOC_PORTABLE);
  }
  CUresult MemFreeHost(void* address) override {
    return cuMemFreeHost_(address);
  }
  CUresult StreamCreate(CUstream* stream) override {
    return cuStreamCreate_(stream, CU_STREAM_NON_BLOCKING);
  }
  CUresult StreamDestroy(CUstream stream) override {
    return cuStreamDestroy_(stream);
  }
  CUresult StreamSynchronize(CUstream stream) override {
    return cuStreamSynchronize_(stream);
  }
  CUresult StreamWaitEvent(CUstream stream, CUevent event) override {
    return cuStreamWaitEvent_(stream, event, 0);
  }
  CUresult EventCreate(CUevent* event, unsigned flags) override {
    return cuEventCreate_(event, flags);
  }
  CUresult EventDestroy(CUevent event) override {
    return cuEventDestroy_(event);
  }
  CUresult EventRecord(CUevent event, CUstream stream) override {
    return cuEventRecord_(event, stream);
  }
  CUresult EventSynchronize(CUevent event) override {
    return cuEventSynchronize_(event);
  }
  CUresult EventElapsedTime(float* time_ms, CUevent start,
                            CUevent end) override {
    return cuEventElapsedTime_(time_ms, start, end);
  }
  CUresult StreamBeginCapture(CUstream stream) override {
    return cuStreamBeginCapture_(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  }
  CUresult StreamEndCapture(CUstream stream, CUgraph* graph) override {
    return cuStreamEndCapture_(stream, graph);
  }
  CUresult GraphDestroy(CUgraph graph) override {
    return cuGraphDestroy_(graph);
  }
  CUresult GraphInstantiate(CUgraphExec* executable, CUgraph graph) override {
    return cuGraphInstantiate_(executable, graph, 0);
  }
  CUresult GraphExecDestroy(CUgraphExec executable) override {
    return cuGraphExecDestroy_(executable);
  }
  CUresult GraphLaunch(CUgraphExec executable, CUstream stream) override {
    return cuGraphLaunch_(executable, stream);
  }
  CUresult ModuleLoadData(CUmodule* module, const void* image) override {
    return cuModuleLoadData_(module, image);
  }
  CUresult ModuleUnload(CUmodule module) override {
    return cuModuleUnload_(module);
  }
  CUresult ModuleGetFunction(CUfunction* function, CUmodule module,
                             const char* name) override {
    return cuModuleGetFunction_(function, module, name);
  }
  CUresult LaunchKernel(const KernelLaunch& launch, CUstream stream) override {
    int64_t count = launch.count;
    // the driver copies the arguments and does not write them
    std::array<void*, 2> arguments = {const_cast<void*>(launch.argument),
                                      &count};
    return cuLaunchKernel_(launch.function, launch.num_blocks, 1, 1,
                           launch.threads_per_block, 1, 1, 0, stream,
                           arguments.data(), nullptr);
  }
  std::string DescribeError(CUresult error) override {
    const char* name = nullptr;
    const char* text = nullptr;
    if (cuGetErrorName_(error, &name) != CUDA_SUCCESS ||
        cuGetErrorString_(error, &text) != CUDA_SUCCESS) {
      return "CUDA error " + std::to_string(static_cast<int>(error));
    }
    return std::string(name) + ": " + text;
  }

 private:
  // Retains the context once more, for the rest of the process: the libraries
  // keep state in it, which would be lost with the context.
  CUresult KeepContext(CUdevice device) {
    static Mutex mutex;
    static std::set<CUdevice> kept;
    const MutexLock lock(mutex);
    if (kept.contains(device)) return CUDA_SUCCESS;
    CUcontext same = nullptr;
    const CUresult result = cuDevicePrimaryCtxRetain_(&same, device);
    if (result == CUDA_SUCCESS) kept.insert(device);
    return result;
  }

  SharedLibrary library_;
  decltype(cuInit)* cuInit_;
  decltype(cuDriverGetVersion)* cuDriverGetVersion_;
  decltype(cuDeviceGetCount)* cuDeviceGetCount_;
  decltype(cuDeviceGet)* cuDeviceGet_;
  decltype(cuDeviceGetName)* cuDeviceGetName_;
  decltype(cuDeviceGetUuid)* cuDeviceGetUuid_;
  decltype(cuDeviceGetAttribute)* cuDeviceGetAttribute_;
  decltype(cuDevicePrimaryCtxRetain)* cuDevicePrimaryCtxRetain_;
  decltype(cuDevicePrimaryCtxRelease)* cuDevicePrimaryCtxRelease_;
  decltype(cuCtxSetCurrent)* cuCtxSetCurrent_;
  decltype(cuMemGetInfo)* cuMemGetInfo_;
  decltype(cuMemAlloc)* cuMemAlloc_;
  decltype(cuMemFree)* cuMemFree_;
  decltype(cuMemcpyHtoDAsync)* cuMemcpyHtoDAsync_;
  decltype(cuMemcpyDtoHAsync)* cuMemcpyDtoHAsync_;
  decltype(cuMemcpyDtoDAsync)* cuMemcpyDtoDAsync_;
  decltype(cuMemHostAlloc)* cuMemHostAlloc_;
  decltype(cuMemFreeHost)* cuMemFreeHost_;
  decltype(cuStreamCreate)* cuStreamCreate_;
  decltype(cuStreamDestroy)* cuStreamDestroy_;
  decltype(cuStreamSynchronize)* cuStreamSynchronize_;
  decltype(cuStreamWaitEvent)* cuStreamWaitEvent_;
  decltype(cuEventCreate)* cuEventCreate_;
  decltype(cuEventDestroy)* cuEventDestroy_;
  decltype(cuEventRecord)* cuEventRecord_;
  decltype(cuEventSynchronize)* cuEventSynchronize_;
  decltype(cuEventElapsedTime)* cuEventElapsedTime_;
  decltype(cuStreamBeginCapture)* cuStreamBeginCapture_;
  decltype(cuStreamEndCapture)* cuStreamEndCapture_;
  decltype(cuGraphDestroy)* cuGraphDestroy_;
  decltype(cuGraphInstantiate)* cuGraphInstantiate_;
  decltype(cuGraphExecDestroy)* cuGraphExecDestroy_;
  decltype(cuGraphLaunch)* cuGraphLaunch_;
  decltype(cuModuleLoadData)* cuModuleLoadData_;
  decltype(cuModuleUnload)* cuModuleUnload_;
  decltype(cuModuleGetFunction)* cuModuleGetFunction_;
  decltype(cuLaunchKernel)* cuLaunchKernel_;
  decltype(cuGetErrorName)* cuGetErrorName_;
  decltype(cuGetErrorString)* cuGetErrorString_;
};

}  // namespace

std::unique_ptr<Driver> LoadDriver() {
  return std::make_unique<LoadedDriver>();
}

}  // namespace replicant::kernels::cuda
