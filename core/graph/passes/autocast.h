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
//   op                                           reads         stores
//   convolutions, MatMul of matrices, gradients  bf16, rounded bf16
//     those of weights (1)                       bf16, rounded f32
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
// So master weights, statistics, sums, losses and optimizers are f32. A product
// with a vector has nothing to gain: power iterations and the policy of a
// single environment stay f32.
//
// Each backend has kernels for these types; the reference defines them.
Program Autocast(const Program& program);

}  // namespace replicant::graph
