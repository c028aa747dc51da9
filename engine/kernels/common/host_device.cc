#include "engine/kernels/common/host_device.h"

#include <fmt/format.h>

#include <cstring>
#include <new>

#include "base/error.h"
#include "base/tensor/host_buffer.h"

namespace replicant::kernels {
namespace {

class HostMemory : public Buffer {
 public:
  explicit HostMemory(size_t size_bytes)
      : buffer_(size_bytes, HostBuffer::Fill::kZero) {}

  std::byte* data() override { return buffer_.data(); }
  size_t size_bytes() const override { return buffer_.size_bytes(); }

 private:
  HostBuffer buffer_;
};

class HostEvent : public Event {
 public:
  void Synchronize() override {}
};

class HostStream : public Stream {
 public:
  void Record(Event& /*event*/) override {}
  void Wait(Event& /*event*/) override {}
  void Synchronize() override {}
  void CopyToDevice(std::byte* device, const std::byte* host,
                    size_t size_bytes) override {
    Copy(device, host, size_bytes);
  }
  void CopyToHost(std::byte* host, const std::byte* device,
                  size_t size_bytes) override {
    Copy(host, device, size_bytes);
  }
  void CopyOnDevice(std::byte* to, const std::byte* from,
                    size_t size_bytes) override {
    Copy(to, from, size_bytes);
  }

 private:
  static void Copy(std::byte* to, const std::byte* from, size_t size_bytes) {
    // an empty tensor may have no address
    if (size_bytes > 0) std::memcpy(to, from, size_bytes);
  }
};

}  // namespace

std::unique_ptr<Buffer> AllocateHostBuffer(const std::string& device,
                                           size_t size_bytes) {
  try {
    return std::make_unique<HostMemory>(size_bytes);
  } catch (const std::bad_alloc&) {
    throw DeviceError(
        fmt::format("{}: cannot allocate {} bytes", device, size_bytes));
  }
}

std::unique_ptr<Stream> CreateHostStream() {
  return std::make_unique<HostStream>();
}

std::unique_ptr<Event> CreateHostEvent() {
  return std::make_unique<HostEvent>();
}

}  // namespace replicant::kernels
