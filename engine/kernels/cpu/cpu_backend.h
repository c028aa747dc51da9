#pragma once

#include <memory>
#include <string>

#include "engine/kernels/backend.h"

namespace replicant::kernels {

// The fast CPU backend, in f32: oneDNN primitives, prepared once, for matrix
// products and convolutions; own vector loops for everything between them.
//
// Types: floating ops take f32, and ops that graph::Autocast() leaves in bf16
// take bf16 as well. Only the reference takes f64. Ops that only move or index
// elements take any dtype. bf16 is computed in f32 and rounded when stored.
// Matrix products and convolutions take bf16 operands directly if the processor
// multiplies bf16, and convert them otherwise. Layouts: row-major, which for
// images is channels last. The kernels that use convolution weights pack them.
//
// Differences from the reference:
// - a Relu fused into MatMul or Conv2d turns NaN into 0, as oneDNN's does.
//   Debug mode fuses nothing and keeps the NaN.
// - floats below 2^-126 count as 0, as operands and as results, on the threads
//   that run a kernel and while they do.
//
// Threads: a kernel runs on the launching thread and `num_threads` - 1 threads
// of its team (base/parallel.h). They inherit that thread's affinity when they
// are created. Work is divided by position only, so the same number of threads
// gives the same bits.
std::unique_ptr<Backend> MakeCpuBackend(const BackendOptions& options);

}  // namespace replicant::kernels
