#pragma once

#include <memory>
#include <string_view>

#include "engine/kernels/cuda/source_compiler.h"

namespace replicant::testing {

// An image of HostSourceCompiler: this prefix and the path of a shared library.
inline constexpr std::string_view kHostImagePrefix = "host library ";

// Compiles generated kernels with the C++ compiler of the build, for
// FakeDriver. Libraries are kept in the build folder by their source, so that a
// source is compiled once for all test programs.
std::unique_ptr<kernels::cuda::SourceCompiler> MakeHostSourceCompiler();

}  // namespace replicant::testing
