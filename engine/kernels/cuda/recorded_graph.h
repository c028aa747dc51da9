#pragma once

#include <functional>
#include <memory>

#include "engine/kernels/backend.h"
#include "engine/kernels/cuda/device.h"

namespace replicant::kernels::cuda {

// The work that `issue` queues on `stream`, as a CUDA graph: captured from the
// stream, instantiated, and launched by one call. `issue` may fork to other
// streams and must join them again, by events. Throws DeviceError, and what
// `issue` throws; the capture has ended then.
//
// Libraries may load code and memory at their first call, which a capture
// forbids: run everything once before it is recorded.
std::unique_ptr<Recording> RecordOn(const std::shared_ptr<const Device>& device,
                                    Stream& stream,
                                    const std::function<void()>& issue);

}  // namespace replicant::kernels::cuda
