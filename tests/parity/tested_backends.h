#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/kernels/backend.h"

namespace replicant::testing {

// Backends that are held against PyTorch's numbers: this machine's backends
// and, if the CUDA backend is compiled, "fake_cuda": that backend on a driver
// and libraries of host code (tests/support/fake_cuda), whose generated kernels
// are compiled for a device as well.
std::vector<std::string> TestedBackends();

using TestedBackend =
    std::unique_ptr<kernels::Backend,
                    std::function<void(const kernels::Backend*)>>;

// One of them. The end of fake_cuda fails the test if its driver saw a fault or
// if something was left behind.
TestedBackend MakeTestedBackend(const std::string& name);

}  // namespace replicant::testing
