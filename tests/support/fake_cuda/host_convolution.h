#pragma once

#include <memory>

#include "core/kernels/cuda/convolution_library.h"
#include "tests/support/fake_cuda/fake_driver.h"

namespace replicant::testing {

// Convolutions in plain loops, in the place of cuDNN. Every plan has a
// workspace, and writes it, so that an operand in its place is seen.
std::unique_ptr<kernels::cuda::ConvolutionLibrary> MakeHostConvolution(
    std::shared_ptr<FakeDriver> driver);

}  // namespace replicant::testing
