#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace replicant::kernels::cuda {

// An address of the device as the libraries take it.
inline void* PointerOf(CUdeviceptr address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<void*>(address);
}

// Memory of the device that a launch may touch.
struct MemoryRange {
  CUdeviceptr address = 0;
  size_t size_bytes = 0;
};

// One launch of a function of a module: void f(Argument argument, int64_t
// count).
struct KernelLaunch {
  CUfunction function = nullptr;
  unsigned num_blocks = 1;
  unsigned threads_per_block = 1;
  // The argument, which is read before LaunchKernel() returns, and its size,
  // which the device already knows.
  const void* argument = nullptr;
  size_t argument_size_bytes = 0;
  // Elements, or rows, that the launch computes.
  int64_t count = 0;
  // Memory that the kernel reads and writes, for a driver that checks launches.
  // The device ignores these.
  std::span<const MemoryRange> reads;
  std::span<const MemoryRange> writes;
};

// The entry points of the CUDA driver that this backend uses, by the names and
// with the meaning of the CUDA driver API, without the prefix "cu".
//
// No program links libcuda: LoadDriver() resolves the entry points at run time,
// so that one binary runs on machines with and without a GPU. Tests substitute
// a driver that keeps "device memory" on the host and checks every call
// (tests/support/fake_cuda).
//
// Thread-safety: as the driver API; any thread.
class Driver {
 public:
  virtual ~Driver() = default;

  virtual CUresult Init() = 0;
  virtual CUresult DriverGetVersion(int* version) = 0;
  virtual CUresult DeviceGetCount(int* count) = 0;
  virtual CUresult DeviceGet(CUdevice* device, int index) = 0;
  virtual CUresult DeviceGetName(std::string* name, CUdevice device) = 0;
  // 16 bytes that no other device has.
  virtual CUresult DeviceGetUuid(std::string* uuid, CUdevice device) = 0;
  virtual CUresult DeviceGetAttribute(int* value, CUdevice_attribute attribute,
                                      CUdevice device) = 0;
  virtual CUresult DevicePrimaryCtxRetain(CUcontext* context,
                                          CUdevice device) = 0;
  virtual CUresult DevicePrimaryCtxRelease(CUdevice device) = 0;
  virtual CUresult CtxSetCurrent(CUcontext context) = 0;

  virtual CUresult MemGetInfo(size_t* free_bytes, size_t* total_bytes) = 0;
  virtual CUresult MemAlloc(CUdeviceptr* address, size_t size_bytes) = 0;
  virtual CUresult MemFree(CUdeviceptr address) = 0;
  virtual CUresult MemcpyHtoDAsync(CUdeviceptr to, const void* from,
                                   size_t size_bytes, CUstream stream) = 0;
  virtual CUresult MemcpyDtoHAsync(void* to, CUdeviceptr from,
                                   size_t size_bytes, CUstream stream) = 0;
  virtual CUresult MemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from,
                                   size_t size_bytes, CUstream stream) = 0;

  // Pinned memory of the host. Copies from and to it overlap with the host's
  // work.
  virtual CUresult MemHostAlloc(void** address, size_t size_bytes) = 0;
  virtual CUresult MemFreeHost(void* address) = 0;

  // Streams without the default stream's implicit order.
  virtual CUresult StreamCreate(CUstream* stream) = 0;
  virtual CUresult StreamDestroy(CUstream stream) = 0;
  virtual CUresult StreamSynchronize(CUstream stream) = 0;
  virtual CUresult StreamWaitEvent(CUstream stream, CUevent event) = 0;
  // `flags` is CU_EVENT_DISABLE_TIMING, or CU_EVENT_DEFAULT for one that
  // EventElapsedTime() takes.
  virtual CUresult EventCreate(CUevent* event, unsigned flags) = 0;
  virtual CUresult EventDestroy(CUevent event) = 0;
  virtual CUresult EventRecord(CUevent event, CUstream stream) = 0;
  virtual CUresult EventSynchronize(CUevent event) = 0;
  // Between two events that have passed.
  virtual CUresult EventElapsedTime(float* time_ms, CUevent start,
                                    CUevent end) = 0;

  // Between the two calls the stream runs nothing: its work becomes nodes of
  // the graph. In the mode "thread local": this thread may meanwhile neither
  // allocate nor wait, others may.
  virtual CUresult StreamBeginCapture(CUstream stream) = 0;
  virtual CUresult StreamEndCapture(CUstream stream, CUgraph* graph) = 0;
  virtual CUresult GraphDestroy(CUgraph graph) = 0;
  virtual CUresult GraphInstantiate(CUgraphExec* executable, CUgraph graph) = 0;
  virtual CUresult GraphExecDestroy(CUgraphExec executable) = 0;
  virtual CUresult GraphLaunch(CUgraphExec executable, CUstream stream) = 0;

  virtual CUresult ModuleLoadData(CUmodule* module, const void* image) = 0;
  virtual CUresult ModuleUnload(CUmodule module) = 0;
  virtual CUresult ModuleGetFunction(CUfunction* function, CUmodule module,
                                     const char* name) = 0;
  virtual CUresult LaunchKernel(const KernelLaunch& launch,
                                CUstream stream) = 0;

  // "CUDA_ERROR_OUT_OF_MEMORY: out of memory".
  virtual std::string DescribeError(CUresult error) = 0;
};

// The driver of this machine. Throws DeviceError in one line if libcuda.so.1 is
// not there or lacks an entry point.
std::unique_ptr<Driver> LoadDriver();

}  // namespace replicant::kernels::cuda
