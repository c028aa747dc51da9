#pragma once

#include "engine/graph/graph.h"

// First values of variables. A weight is [out, in] (dense) or
// [out, in, kernel_h, kernel_w] (convolution), as in PyTorch; with r the
// product of the kernel's dimensions, fan_in = in * r and fan_out = out * r.
// Floating dtypes only (checked).
namespace replicant::nn {

using graph::Initializer;

Initializer Constant(double value);
Initializer Uniform(double low, double high);
Initializer Normal(double mean, double standard_deviation);

// A random matrix [out, fan_in] with orthogonal rows (or columns, if there are
// fewer) of norm `gain` (arXiv:1312.6120), by Gram-Schmidt, twice, in double.
// Complexity: O(out * fan_in * min(out, fan_in)).
Initializer Orthogonal(double gain = 1.0);

// Normal with variance 2 / fan_in (arXiv:1502.01852, eq. 10).
Initializer HeNormal();
// Normal with variance 2 / fan_out (eq. 14 there), as torchvision's ResNets.
Initializer HeNormalFanOut();
// Uniform in +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010, eq. 16).
Initializer GlorotUniform();

// PyTorch's first values of Linear and Conv2d: weight and bias uniform in
// +-1 / sqrt(fan_in), where fan_in is the weight's for both.
Initializer PyTorchWeight();
Initializer PyTorchBias(int64_t fan_in);

// A random direction: normal, divided by the norm.
Initializer UnitVector();

// Multiplies every value of `initializer` by `factor`, for the small last layer
// of a policy.
Initializer Scaled(Initializer initializer, double factor);
// Adds slope * i to value i of `initializer`: the last bias of a critic, so
// that its first distribution leans to one side.
Initializer PlusRamp(Initializer initializer, double slope);

}  // namespace replicant::nn
