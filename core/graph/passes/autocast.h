#pragma once

#include "core/graph/passes/passes.h"

namespace replicant::graph {

// Rewrites a program of f32, gradients and updates included, so that it
// multiplies and keeps in bf16 what can bear it. What is f32 to the caller
// (inputs, variables, outputs) stays so; tensors of other types are left alone.
//
// Rounding is to nearest, ties to even, and happens where a tensor is stored
// as bf16 and nowhere else: inside an op everything is computed from the
// values as they are stored, in at least f32. A bias that a later pass puts
// behind a product is added before that is rounded; an activation behind a
// product or a norm may be applied before.
//
//   op                             reads              stores
//   Conv2d, its input gradient,    bf16: others are   bf16
//     MatMul of matrices             rounded first
//   their weight gradients: MatMul bf16, likewise     f32
//     with transpose_a,
//     Conv2dWeightGradient
//   MatMul with a size of 1        f32                f32
//   elementwise                    as stored          bf16 if all floating
//                                                       inputs of the result's
//                                                       size are, and there is
//                                                       one; else f32
//   norms and their gradients      x (and what has its as x; statistics and
//                                    shape) as stored,   gradients of gamma,
//                                    gamma, beta f32     beta f32
//   pools, upsampling, reshapes    as stored          as read (input 0)
//     and other moves of elements
//   Concat                         as stored          bf16 if all inputs are
//   ReduceSum, ReduceMean          as stored          f32
//   everything else: losses,       f32                f32
//     softmax, projections,
//     random numbers, updates,
//     calls between replicas
//
// So master weights, statistics, sums, losses and optimizers are f32. A product
// with a vector has nothing to gain: power iterations and the policy of a
// single environment stay f32.
//
// Each backend has kernels for these types; the reference defines them.
Program Autocast(const Program& program);

}  // namespace replicant::graph
