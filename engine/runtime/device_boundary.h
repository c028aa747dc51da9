#pragma once

#include <cstddef>
#include <memory>

#include "engine/kernels/backend.h"

namespace replicant::runtime {

// Moves inputs and outputs of a plan between the host and a device whose memory
// the host cannot reach.
//
// The caller's tensors lie in pinned memory. Inputs go to a landing area on a
// separate stream, and from there, on the plan's stream, to where kernels read
// them. The next inputs can therefore travel while the plan computes:
//
//   host            fill   Send   Receive   fill next   Send
//   own stream             host -> landing              host -> landing
//   plan's stream                 landing -> inputs, kernels, outputs -> host
//
// Thread-safety: one thread at a time.
class DeviceBoundary {
 public:
  // `boundary` has the inputs in its first `input_size_bytes` and the outputs
  // after them. Both arguments outlive this object. Throws DeviceError.
  DeviceBoundary(kernels::Backend& backend, kernels::Buffer* boundary,
                 size_t input_size_bytes);
  // Waits for copies in progress.
  ~DeviceBoundary();
  DeviceBoundary(const DeviceBoundary&) = delete;
  DeviceBoundary& operator=(const DeviceBoundary&) = delete;

  // The host's address for this device address within the boundary.
  std::byte* HostAddress(const std::byte* device) const;

  // Starts to copy the inputs to the device, after the last Receive(). Throws
  // DeviceError, after which the host may write its inputs again.
  void Send();
  // Moves the last sent inputs to where kernels read them, in stream order.
  void Receive(kernels::Stream& stream);
  // Blocks until the host may write its inputs again.
  void WaitUntilSent();
  // Copies the outputs to the host, in stream order; can be recorded.
  void CopyOutputs(kernels::Stream& stream);

 private:
  // Blocks until no copy of Send() is in progress.
  void AwaitCopies() noexcept;

  std::byte* const device_inputs_;
  std::byte* const device_outputs_;
  const std::unique_ptr<kernels::Buffer> inputs_;   // of the host
  const std::unique_ptr<kernels::Buffer> outputs_;  // of the host
  const std::unique_ptr<kernels::Buffer> landing_;
  const std::unique_ptr<kernels::Stream> stream_;
  const std::unique_ptr<kernels::Event> landed_;
  const std::unique_ptr<kernels::Event> taken_;
  bool is_sending_ = false;
};

}  // namespace replicant::runtime
