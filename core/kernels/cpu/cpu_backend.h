#pragma once

#include <memory>
#include <string>

#include "core/kernels/backend.h"

namespace replicant::kernels {

// The fast CPU backend, in f32: oneDNN primitives for matrix products and
// convolutions, prepared once; own vector loops for everything between them.
//
// Types: floating ops take f32 (f64 is the reference's), those that
// graph::Autocast() leaves in bf16 that as well; ops that only move or index
// elements take any dtype. bf16 is computed with as f32 and rounded where it is
// stored; matrix products and convolutions take it as it is where the processor
// multiplies bf16, and elsewhere convert it. Layouts: row-major, which
// for images is channels last; weights of convolutions are packed by the
// kernels that use them.
//
// Differs from the reference:
// - a Relu that is fused behind MatMul or Conv2d makes 0 of NaN, as oneDNN's
//   does. Debug mode fuses nothing and sees it.
// - floats below 2^-126 are 0, as operands and as results, on the threads that
//   run a kernel and while they do.
//
// Threads: a kernel runs on `num_threads` threads of the OpenMP team of the
// thread that launches it, which inherit that thread's affinity when they are
// made. Work is divided by position only, so that the same number of threads
// gives the same bits.
std::unique_ptr<Backend> MakeCpuBackend(const BackendOptions& options);

}  // namespace replicant::kernels
