#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/tensor/host_tensor.h"

// Tensors with given or random values, and the values of a tensor, for tests.
namespace replicant::testing {

// Numbers as a tensor of any dtype, rounded to it.
HostTensor Values(DType dtype, const Shape& shape,
                  const std::vector<double>& values);

// Standard normal numbers from a stream named by `seed`.
HostTensor RandomNormal(DType dtype, const Shape& shape, uint64_t seed);
// Uniform in [low, high).
HostTensor RandomUniform(DType dtype, const Shape& shape, double low,
                         double high, uint64_t seed);
// Rows of a [rows, columns] matrix that are positive and sum to 1.
HostTensor RandomDistribution(DType dtype, int64_t rows, int64_t columns,
                              uint64_t seed);

// The elements of any dtype as double.
std::vector<double> ToDoubles(TensorView tensor);

}  // namespace replicant::testing
