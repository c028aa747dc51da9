#include "engine/kernels/cuda/device.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "engine/kernels/cuda/kernel_image.h"

namespace replicant::kernels::cuda {
namespace {

// CUDA 13.0, the first that the own kernels and libraries run with.
constexpr int kMinDriverVersion = 13000;

std::string VersionText(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

class CudaBuffer : public Buffer {
 public:
  CudaBuffer(std::shared_ptr<const Device> device, size_t size_bytes)
      : device_(std::move(device)), size_bytes_(size_bytes) {
    // cuMemAlloc() refuses a size of 0
    if (size_bytes == 0) return;
    Driver& driver = device_->driver();
    const CUresult result = driver.MemAlloc(&address_, size_bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      size_t free_bytes = 0;
      size_t total_bytes = 0;
      device_->Check(driver.MemGetInfo(&free_bytes, &total_bytes),
                     "cuMemGetInfo");
      throw DeviceError(
          fmt::format("{}: cannot allocate {} bytes; {} of {} bytes are free",
                      device_->name(), size_bytes, free_bytes, total_bytes));
    }
    device_->Check(result, "cuMemAlloc");
  }
  ~CudaBuffer() override {
    if (address_ != 0) device_->driver_for_cleanup().MemFree(address_);
  }
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;

  std::byte* data() override {
    return static_cast<std::byte*>(PointerOf(address_));
  }
  size_t size_bytes() const override { return size_bytes_; }

 private:
  const std::shared_ptr<const Device> device_;
  const size_t size_bytes_;
  CUdeviceptr address_ = 0;
};

class PinnedBuffer : public Buffer {
 public:
  PinnedBuffer(std::shared_ptr<const Device> device, size_t size_bytes)
      : device_(std::move(device)), size_bytes_(size_bytes) {
    if (size_bytes == 0) return;
    const CUresult result =
        device_->driver().MemHostAlloc(&address_, size_bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      throw DeviceError(fmt::format(
          "{}: cannot allocate {} bytes of pinned memory of the host",
          device_->name(), size_bytes));
    }
    device_->Check(result, "cuMemHostAlloc");
  }
  ~PinnedBuffer() override {
    if (address_ != nullptr) {
      device_->driver_for_cleanup().MemFreeHost(address_);
    }
  }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  std::byte* data() override { return static_cast<std::byte*>(address_); }
  size_t size_bytes() const override { return size_bytes_; }

 private:
  const std::shared_ptr<const Device> device_;
  const size_t size_bytes_;
  void* address_ = nullptr;
};

class CudaEvent : public Event {
 public:
  explicit CudaEvent(std::shared_ptr<const Device> device)
      : device_(std::move(device)) {
    device_->Check(
        device_->driver().EventCreate(&event_, CU_EVENT_DISABLE_TIMING),
        "cuEventCreate");
  }
  ~CudaEvent() override { device_->driver_for_cleanup().EventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void Synchronize() override {
    device_->Check(device_->driver().EventSynchronize(event_),
                   "cuEventSynchronize");
  }
  CUevent get() const { return event_; }

 private:
  const std::shared_ptr<const Device> device_;
  CUevent event_ = nullptr;
};

class CudaStream : public Stream {
 public:
  explicit CudaStream(std::shared_ptr<const Device> device)
      : device_(std::move(device)) {
    device_->Check(device_->driver().StreamCreate(&stream_), "cuStreamCreate");
  }
  ~CudaStream() override {
    device_->driver_for_cleanup().StreamDestroy(stream_);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void Record(Event& event) override {
    device_->Check(device_->driver().EventRecord(HandleOf(event), stream_),
                   "cuEventRecord");
  }
  void Wait(Event& event) override {
    device_->Check(device_->driver().StreamWaitEvent(stream_, HandleOf(event)),
                   "cuStreamWaitEvent");
  }
  void Synchronize() override {
    device_->Check(device_->driver().StreamSynchronize(stream_),
                   "cuStreamSynchronize");
  }
  void CopyToDevice(std::byte* device, const std::byte* host,
                    size_t size_bytes) override {
    if (size_bytes == 0) return;
    device_->Check(device_->driver().MemcpyHtoDAsync(AddressOf(device), host,
                                                     size_bytes, stream_),
                   "cuMemcpyHtoDAsync");
  }
  void CopyToHost(std::byte* host, const std::byte* device,
                  size_t size_bytes) override {
    if (size_bytes == 0) return;
    device_->Check(device_->driver().MemcpyDtoHAsync(host, AddressOf(device),
                                                     size_bytes, stream_),
                   "cuMemcpyDtoHAsync");
  }
  void CopyOnDevice(std::byte* to, const std::byte* from,
                    size_t size_bytes) override {
    if (size_bytes == 0) return;
    device_->Check(device_->driver().MemcpyDtoDAsync(
                       AddressOf(to), AddressOf(from), size_bytes, stream_),
                   "cuMemcpyDtoDAsync");
  }
  CUstream get() const { return stream_; }

 private:
  static CUevent HandleOf(Event& event) {
    auto* own = dynamic_cast<CudaEvent*>(&event);
    REPLICANT_CHECK(own != nullptr, "an event of another backend");
    return own->get();
  }

  const std::shared_ptr<const Device> device_;
  CUstream stream_ = nullptr;
};

}  // namespace

Device::Device(Libraries libraries, int index)
    : libraries_(std::move(libraries)), name_(fmt::format("cuda:{}", index)) {
  Driver& driver = *libraries_.driver;
  const CUresult started = driver.Init();
  int count = 0;
  if (started != CUDA_ERROR_NO_DEVICE) {
    Check(started, "cuInit");
    Check(driver.DeviceGetCount(&count), "cuDeviceGetCount");
  }
  if (count == 0) {
    throw DeviceError(
        fmt::format("{}: this machine has no CUDA device", name_));
  }
  if (index < 0 || index >= count) {
    throw DeviceError(
        fmt::format("{}: no such device; this machine has {}", name_,
                    count == 1 ? std::string("cuda:0")
                               : fmt::format("cuda:0 to cuda:{}", count - 1)));
  }
  int version = 0;
  Check(driver.DriverGetVersion(&version), "cuDriverGetVersion");
  if (version < kMinDriverVersion) {
    throw DeviceError(fmt::format(
        "{}: the driver supports CUDA {}, want {} or newer; hint: update the "
        "NVIDIA driver",
        name_, VersionText(version), VersionText(kMinDriverVersion)));
  }
  Check(driver.DeviceGet(&device_, index), "cuDeviceGet");
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    Check(driver.DeviceGetAttribute(&value, which, device_),
          "cuDeviceGetAttribute");
    return value;
  };
  compute_capability_ =
      10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
      attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  Check(driver.DevicePrimaryCtxRetain(&context_, device_),
        "cuDevicePrimaryCtxRetain");
  try {
    Check(driver.CtxSetCurrent(context_), "cuCtxSetCurrent");
    Check(driver.ModuleLoadData(&own_kernels_, OwnKernelImage()),
          "cuModuleLoadData(own kernels)");
  } catch (...) {
    driver.DevicePrimaryCtxRelease(device_);
    throw;
  }
}

Device::~Device() {
  Driver& driver = driver_for_cleanup();
  driver.ModuleUnload(own_kernels_);
  driver.DevicePrimaryCtxRelease(device_);
}

std::string Device::Uuid() const {
  std::string bytes;
  Check(driver().DeviceGetUuid(&bytes, device_), "cuDeviceGetUuid");
  std::string digits;
  for (const char byte : bytes) {
    digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return digits;
}

std::string Device::Description() const {
  std::string model;
  Check(driver().DeviceGetName(&model, device_), "cuDeviceGetName");
  int version = 0;
  Check(driver().DriverGetVersion(&version), "cuDriverGetVersion");
  return fmt::format("{}, compute capability {}.{}, driver of CUDA {}", model,
                     compute_capability_ / 10, compute_capability_ % 10,
                     VersionText(version));
}

Driver& Device::driver() const {
  Driver& driver = *libraries_.driver;
  Check(driver.CtxSetCurrent(context_), "cuCtxSetCurrent");
  return driver;
}

Driver& Device::driver_for_cleanup() const noexcept {
  Driver& driver = *libraries_.driver;
  // if this fails, so do the next calls, and a destructor cannot report it
  static_cast<void>(driver.CtxSetCurrent(context_));
  return driver;
}

void Device::Check(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return;
  throw DeviceError(fmt::format("{}: {}: {}", name_, call,
                                libraries_.driver->DescribeError(result)));
}

CUfunction Device::FindFunction(const char* name) const {
  CUfunction function = nullptr;
  Check(driver().ModuleGetFunction(&function, own_kernels_, name),
        fmt::format("cuModuleGetFunction({})", name).c_str());
  return function;
}

GeneratedFunction::GeneratedFunction(std::shared_ptr<const Device> device,
                                     const std::string& source,
                                     const char* name)
    : device_(std::move(device)) {
  const std::string image = device_->libraries().compiler->Compile(
      source, device_->compute_capability());
  Driver& driver = device_->driver();
  device_->Check(driver.ModuleLoadData(&module_, image.c_str()),
                 "cuModuleLoadData");
  const CUresult result = driver.ModuleGetFunction(&function_, module_, name);
  if (result != CUDA_SUCCESS) driver.ModuleUnload(module_);
  device_->Check(result, "cuModuleGetFunction");
}

GeneratedFunction::~GeneratedFunction() {
  device_->driver_for_cleanup().ModuleUnload(module_);
}

std::shared_ptr<const GeneratedFunction> FunctionCache::Get(
    const std::string& source, const char* name) {
  const MutexLock lock(mutex_);
  std::shared_ptr<const GeneratedFunction>& function = functions_[source];
  if (function == nullptr) {
    function = std::make_shared<GeneratedFunction>(device_, source, name);
  }
  return function;
}

std::unique_ptr<Buffer> AllocateOn(std::shared_ptr<const Device> device,
                                   size_t size_bytes) {
  return std::make_unique<CudaBuffer>(std::move(device), size_bytes);
}

std::unique_ptr<Buffer> AllocatePinnedOn(std::shared_ptr<const Device> device,
                                         size_t size_bytes) {
  return std::make_unique<PinnedBuffer>(std::move(device), size_bytes);
}

std::unique_ptr<Stream> CreateStreamOn(std::shared_ptr<const Device> device) {
  return std::make_unique<CudaStream>(std::move(device));
}

std::unique_ptr<Event> CreateEventOn(std::shared_ptr<const Device> device) {
  return std::make_unique<CudaEvent>(std::move(device));
}

CUstream HandleOf(Stream& stream) {
  auto* own = dynamic_cast<CudaStream*>(&stream);
  REPLICANT_CHECK(own != nullptr, "a stream of another backend");
  return own->get();
}

}  // namespace replicant::kernels::cuda
