#pragma once

#include <cstddef>
#include <memory>

#include "core/kernels/backend.h"

// Memory, streams and events of a backend whose device is the host itself and
// whose kernels have run when Launch() returns: everything is done at once, so
// there is nothing to wait for.
namespace replicant::kernels {

// Throws DeviceError "<device>: cannot allocate <n> bytes".
std::unique_ptr<Buffer> AllocateHostBuffer(const std::string& device,
                                           size_t size_bytes);
std::unique_ptr<Stream> CreateHostStream();
std::unique_ptr<Event> CreateHostEvent();

}  // namespace replicant::kernels
