#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "engine/kernels/backend.h"
#include "engine/kernels/cuda/convolution_library.h"
#include "engine/kernels/cuda/driver.h"
#include "engine/kernels/cuda/matmul_library.h"
#include "engine/kernels/cuda/nccl_library.h"
#include "engine/kernels/cuda/source_compiler.h"

namespace replicant::kernels::cuda {

// Everything outside this project that the backend calls.
struct Libraries {
  std::shared_ptr<Driver> driver;
  std::shared_ptr<SourceCompiler> compiler;
  std::shared_ptr<MatMulLibrary> matmul;
  std::shared_ptr<ConvolutionLibrary> convolution;
  std::shared_ptr<NcclLibrary> nccl;
};

// One GPU with its primary context, and the functions of own kernels.
//
// Kernels, buffers, streams and events hold it by shared_ptr.
//
// Thread-safety: any thread. A call makes the context current in its thread.
class Device {
 public:
  // Throws DeviceError "cuda:<index>: ..." if there is no such device, its
  // driver is older than CUDA 13 or a call fails.
  Device(Libraries libraries, int index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // "cuda:0".
  const std::string& name() const { return name_; }
  // 90 for compute capability 9.0.
  int compute_capability() const { return compute_capability_; }
  // 32 hexadecimal digits that no other device has. Throws DeviceError.
  std::string Uuid() const;
  // "NVIDIA H100 80GB HBM3, compute capability 9.0, driver of CUDA 13.0".
  // Throws DeviceError.
  std::string Description() const;
  const Libraries& libraries() const { return libraries_; }

  // The driver, with the context of this device current in this thread. Throws
  // DeviceError.
  Driver& driver() const;
  // driver() for destructors: makes the context current if possible.
  Driver& driver_for_cleanup() const noexcept;
  // Throws DeviceError "<device>: <call>: <error>" unless `result` is success.
  void Check(CUresult result, const char* call) const;

  // The function `name` of the own kernels (kernel_list.h).
  CUfunction FindFunction(const char* name) const;

 private:
  const Libraries libraries_;
  const std::string name_;
  int compute_capability_ = 0;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule own_kernels_ = nullptr;
};

// Generated code on a device: one function in a separate module.
class GeneratedFunction {
 public:
  // Compiles `source` and loads it. Throws DeviceError.
  GeneratedFunction(std::shared_ptr<const Device> device,
                    const std::string& source, const char* name);
  ~GeneratedFunction();
  GeneratedFunction(const GeneratedFunction&) = delete;
  GeneratedFunction& operator=(const GeneratedFunction&) = delete;

  CUfunction get() const { return function_; }

 private:
  const std::shared_ptr<const Device> device_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

// The generated functions of a backend: equal sources are compiled once.
//
// Thread-safety: any thread.
class FunctionCache {
 public:
  explicit FunctionCache(std::shared_ptr<const Device> device)
      : device_(std::move(device)) {}

  // The function `name` of `source`; valid while the result is held. Throws
  // DeviceError.
  std::shared_ptr<const GeneratedFunction> Get(const std::string& source,
                                               const char* name)
      EXCLUDES(mutex_);

 private:
  const std::shared_ptr<const Device> device_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<const GeneratedFunction>> functions_
      GUARDED_BY(mutex_);
};

// Memory, streams and events of a device. They throw DeviceError.
std::unique_ptr<Buffer> AllocateOn(std::shared_ptr<const Device> device,
                                   size_t size_bytes);
// Pinned memory of the host.
std::unique_ptr<Buffer> AllocatePinnedOn(std::shared_ptr<const Device> device,
                                         size_t size_bytes);
std::unique_ptr<Stream> CreateStreamOn(std::shared_ptr<const Device> device);
std::unique_ptr<Event> CreateEventOn(std::shared_ptr<const Device> device);

// The driver's handle of a stream of CreateStreamOn().
CUstream HandleOf(Stream& stream);

// Pointers to device memory as the driver's addresses.
inline CUdeviceptr AddressOf(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

}  // namespace replicant::kernels::cuda
