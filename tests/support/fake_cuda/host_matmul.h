#pragma once

#include <memory>
#include <string>

#include "engine/kernels/cuda/matmul_library.h"
#include "tests/support/fake_cuda/fake_driver.h"
#include "tests/support/fake_cuda/host_candidate.h"

namespace replicant::testing {

// Matrix products in plain loops, in the place of cuBLASLt. Every plan has a
// workspace, and writes it, so that an operand in its place is seen.
std::unique_ptr<kernels::cuda::MatMulLibrary> MakeHostMatMul(
    std::shared_ptr<FakeDriver> driver,
    HostCandidates<kernels::cuda::MatMulProblem> candidates =
        &OneCandidate<kernels::cuda::MatMulProblem>,
    std::string version = "loops 1");

}  // namespace replicant::testing
