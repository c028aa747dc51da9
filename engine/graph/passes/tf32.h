#pragma once

#include "engine/graph/passes/passes.h"

namespace replicant::graph {

// Marks the f32 products of a program, so that a device may round their
// operands to TF32: f32 with 10 bits of fraction, the operand format of
// NVIDIA's tensor cores. Sums and results stay f32, and so does every other op.
// The products are MatMul, BatchMatMul, Conv2d and both gradients of Conv2d.
//
// TF32 is a permission: a backend without it computes the products in f32. The
// `cuda` backend uses it.
Program AllowTF32(const Program& program);

// Whether AllowTF32() has marked the node.
bool AllowsTF32(const Node& node);

}  // namespace replicant::graph
