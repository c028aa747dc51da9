#pragma once

#include <cstddef>
#include <optional>

#include "base/tensor/host_tensor.h"
#include "engine/graph/graph.h"
#include "engine/kernels/backend.h"

namespace replicant::replicator {

// An operand of a kernel whose work the host does, such as a call between
// replicas. data() is an address that the host may touch: the operand itself
// where the backend's memory is the host's, and a staging buffer of the same
// size elsewhere.
//
//   Bind(address) -> (Load(stream), stream.Synchronize(), ..., Store(stream))*
//
// Thread-safety: as the kernel.
class HostOperand {
 public:
  HostOperand(bool is_host_memory, const graph::TensorType& type) {
    if (!is_host_memory) staging_.emplace(type.dtype, type.shape);
  }

  // `device` is the operand's address in the backend's memory.
  void Bind(const std::byte* device) {
    // kernels write into outputs only
    device_ = const_cast<std::byte*>(device);
  }
  std::byte* data() { return staging_ ? staging_->bytes().data() : device_; }

  // Copies the operand to the host, in stream order; nothing is copied on a
  // backend with host memory.
  void Load(kernels::Stream& stream) {
    if (!staging_) return;
    stream.CopyToHost(staging_->bytes().data(), device_,
                      staging_->size_bytes());
  }
  // Copies what the host wrote to the device, in stream order.
  void Store(kernels::Stream& stream) {
    if (!staging_) return;
    stream.CopyToDevice(device_, staging_->bytes().data(),
                        staging_->size_bytes());
  }

 private:
  std::byte* device_ = nullptr;
  std::optional<HostTensor> staging_;
};

}  // namespace replicant::replicator
