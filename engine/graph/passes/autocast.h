#pragma once

#include "engine/graph/passes/passes.h"

namespace replicant::graph {

// Rewrites a program of f32, gradients and updates included, so that products
// and most stored tensors are bf16. Inputs, variables and outputs keep their
// dtype; tensors of other dtypes than f32 are not touched.
//
// Rounding is to nearest, ties to even, and happens only where a tensor is
// stored as bf16. An op computes from the stored values in at least f32. A bias
// that a later pass fuses into a product is added before the product is
// rounded; an activation fused into a product or a norm may also come before
// the rounding.
//
//   op                                           reads         stores
//   convolutions, MatMul of matrices, gradients  bf16, rounded bf16
//     gradients of weights (1)                   bf16, rounded f32
//   MatMul with a size of 1                      f32           f32
//   elementwise                                  as stored     bf16 or f32 (2)
//   norms and their gradients                    x as stored   as x
//     gamma, beta, statistics, their gradients   f32           f32
//   pools, upsampling, reshapes, other moves     as stored     as input 0
//   Concat                                       as stored     bf16 if all are
//   ReduceSum, ReduceMean, BatchMoments          as stored     f32
//   everything else: losses, softmax, updates,   f32           f32
//     random numbers, calls between replicas
//
//   (1) Conv2dWeightGradient, MatMul with transpose_a
//   (2) bf16 if there are floating inputs of the result's size and all of them
//       are bf16
//
// Master weights, statistics, sums, losses and optimizers are therefore f32. A
// product with a vector gains nothing from bf16: power iterations and the
// policy of a single environment stay f32.
//
// Every backend has kernels for these types; the reference defines the results.
Program Autocast(const Program& program);

}  // namespace replicant::graph
