#pragma once

#include <cstddef>

#include "core/graph/scalar_program.h"

namespace replicant::kernels::cpu {

// out[i] = op(a[i], b[i], c[i]; p, q) for i < n, in f32; truth values are 1 and
// 0. Operands that the op does not have may be null. `out` may be one of the
// operands.
//
// Within 4 units in the last place of the exact value (sin, cos: of 1 where
// that is larger, for |a| < 30000); NaN stays NaN.
using VectorFunction = void (*)(const float* a, const float* b, const float* c,
                                float p, float q, float* out, size_t n);

// The function of an op for the instruction set of this processor.
VectorFunction FindVectorFunction(graph::ScalarOp op);

// sum_i a[i] * b[i]
float DotProduct(const float* a, const float* b, size_t n);

}  // namespace replicant::kernels::cpu
