#pragma once

#include <cstdint>
#include <map>
#include <string_view>

namespace replicant::testing {

// Runs an own kernel on the host: every element, or row, of `count`.
using HostKernelFunction = void (*)(const void* argument, int64_t count);

// The own kernels of the CUDA backend, compiled for the host from the same
// bodies, by the name of their function.
const std::map<std::string_view, HostKernelFunction>& HostKernels();

}  // namespace replicant::testing
