#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/graph/scalar_program.h"
#include "engine/graph/tensor_type.h"

namespace replicant::kernels::cuda {

// The name and the argument of the function of ElementwiseSource().
inline constexpr const char* kElementwiseFunction = "elementwise";
struct ElementwiseArgument {
  const void* inputs[graph::ScalarProgram::kMaxInputs];
  void* output;
};

struct GeneratedSource {
  std::string text;
  // Elements that one thread computes at once; the function's count is the
  // number of output elements divided by it.
  int64_t lanes = 1;
};

// CUDA C++ that computes `program` for every element of the output, with the
// inputs broadcast to its shape. It begins with elementwise_prelude.h and
// compiles for the host as well. Operands start at multiples of 16 bytes.
//
// Floats, u8 and bool are computed in f32; i32 and i64 in double, as by the
// reference. f64 is not supported. Nodes of different sizes share a source
// where no input is broadcast and the lanes are the same.
GeneratedSource ElementwiseSource(const graph::ScalarProgram& program,
                                  std::span<const graph::TensorType> inputs,
                                  const graph::TensorType& output);

}  // namespace replicant::kernels::cuda
