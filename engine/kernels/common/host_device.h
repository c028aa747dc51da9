#pragma once

#include <cstddef>
#include <memory>

#include "engine/kernels/backend.h"

// Memory, streams and events of a backend whose device is the host and whose
// kernels are complete when Launch() returns. No call ever waits.
namespace replicant::kernels {

// Throws DeviceError "<device>: cannot allocate <n> bytes".
std::unique_ptr<Buffer> AllocateHostBuffer(const std::string& device,
                                           size_t size_bytes);
std::unique_ptr<Stream> CreateHostStream();
std::unique_ptr<Event> CreateHostEvent();

}  // namespace replicant::kernels
