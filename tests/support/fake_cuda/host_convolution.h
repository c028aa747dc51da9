#pragma once

#include <memory>
#include <string>

#include "engine/kernels/cuda/convolution_library.h"
#include "tests/support/fake_cuda/fake_driver.h"
#include "tests/support/fake_cuda/host_candidate.h"

namespace replicant::testing {

// Convolutions in plain loops, in the place of cuDNN. Every plan has a
// workspace, and writes it, so that an operand in its place is seen.
std::unique_ptr<kernels::cuda::ConvolutionLibrary> MakeHostConvolution(
    std::shared_ptr<FakeDriver> driver,
    HostCandidates<kernels::cuda::ConvolutionProblem> candidates =
        &OneCandidate<kernels::cuda::ConvolutionProblem>,
    std::string version = "loops 1");

}  // namespace replicant::testing
