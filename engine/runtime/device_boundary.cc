#include "engine/runtime/device_boundary.h"

#include <cstring>

#include "base/error.h"

namespace replicant::runtime {

DeviceBoundary::DeviceBoundary(kernels::Backend& backend,
                               kernels::Buffer* boundary,
                               size_t input_size_bytes)
    : device_inputs_(boundary->data()),
      device_outputs_(boundary->data() + input_size_bytes),
      inputs_(backend.AllocateHost(input_size_bytes)),
      outputs_(backend.AllocateHost(boundary->size_bytes() - input_size_bytes)),
      landing_(backend.Allocate(input_size_bytes)),
      stream_(backend.CreateStream()),
      landed_(backend.CreateEvent()),
      taken_(backend.CreateEvent()) {
  // inputs keep their contents from run to run, and start as zeros
  for (kernels::Buffer* const buffer : {inputs_.get(), outputs_.get()}) {
    if (buffer->size_bytes() > 0) {
      std::memset(buffer->data(), 0, buffer->size_bytes());
    }
  }
  // outputs are copied with the padding between them, which is never written
  stream_->CopyToDevice(device_outputs_, outputs_->data(),
                        outputs_->size_bytes());
  try {
    stream_->Synchronize();
  } catch (...) {
    AwaitCopies();
    throw;
  }
}

DeviceBoundary::~DeviceBoundary() {
  if (is_sending_) AwaitCopies();
}

void DeviceBoundary::AwaitCopies() noexcept {
  try {
    stream_->Synchronize();
  } catch (const DeviceError&) {
    // the failure that led here has been reported
  }
}

std::byte* DeviceBoundary::HostAddress(const std::byte* device) const {
  return device < device_outputs_
             ? inputs_->data() + (device - device_inputs_)
             : outputs_->data() + (device - device_outputs_);
}

void DeviceBoundary::Send() {
  if (inputs_->size_bytes() == 0) return;
  stream_->Wait(*taken_);
  try {
    stream_->CopyToDevice(landing_->data(), inputs_->data(),
                          inputs_->size_bytes());
    stream_->Record(*landed_);
    is_sending_ = true;
  } catch (...) {
    // nothing marks the end of this copy
    AwaitCopies();
    throw;
  }
}

void DeviceBoundary::Receive(kernels::Stream& stream) {
  if (inputs_->size_bytes() == 0) return;
  stream.Wait(*landed_);
  stream.CopyOnDevice(device_inputs_, landing_->data(), landing_->size_bytes());
  stream.Record(*taken_);
}

void DeviceBoundary::WaitUntilSent() {
  if (!is_sending_) return;
  landed_->Synchronize();
  is_sending_ = false;
}

void DeviceBoundary::CopyOutputs(kernels::Stream& stream) {
  stream.CopyToHost(outputs_->data(), device_outputs_, outputs_->size_bytes());
}

}  // namespace replicant::runtime
