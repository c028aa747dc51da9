#pragma once

#include <cstddef>

#include "base/tensor/bfloat16.h"
#include "engine/graph/scalar_program.h"

namespace replicant::kernels::cpu {

// out[i] = op(a[i], b[i], c[i]; p, q) for i < n, in f32; truth values are 1 and
// 0. Operands that the op lacks may be null. `out` may be one of the operands.
//
// Accuracy: 4 units in the last place of the exact value (sin, cos: of 1 if
// that is larger; they are slow where |a| >= 30000). NaN stays NaN.
using VectorFunction = void (*)(const float* a, const float* b, const float* c,
                                float p, float q, float* out, size_t n);

// The function of an op for the instruction set of this processor.
VectorFunction FindVectorFunction(graph::ScalarOp op);

// The unary function that rounds to bf16.
VectorFunction BF16RoundingFunction();

// Converts n elements of bf16 to floats, and floats to bf16 as BFloat16 rounds.
void ToFloats(const BFloat16* x, size_t n, float* out);
void ToBF16(const float* x, size_t n, BFloat16* out);

// y[r] = sum_i matrix[r * n + i] * x[i] for r < num_rows: a row-major matrix
// times a vector. The result of a row does not depend on the other rows.
void MatrixTimesVector(const float* matrix, size_t num_rows, size_t n,
                       const float* x, float* y);

}  // namespace replicant::kernels::cpu
