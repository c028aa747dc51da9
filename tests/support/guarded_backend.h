#pragma once

#include <memory>
#include <string_view>

#include "engine/kernels/backend.h"

namespace replicant::testing {

// The reference backend as a device whose memory the host may not touch.
//
// Its buffers are pages without access (PROT_NONE) except during copies by its
// streams and launches of its kernels: any other read or write of a buffer ends
// the process with SIGSEGV. Results equal "reference" bit by bit.
//
// Thread-safety: as a Backend; kernels of one backend may be launched on
// several threads at a time.
std::unique_ptr<kernels::Backend> MakeGuardedBackend();

// The same as a BackendFactory, whatever the name.
std::unique_ptr<kernels::Backend> MakeGuardedBackendNamed(
    std::string_view name, const kernels::BackendOptions& options);

}  // namespace replicant::testing
