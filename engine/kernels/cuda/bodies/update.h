#pragma once

#include "engine/kernels/cuda/bodies/device.h"

// Updates of many variables in one launch (graph/ops/optimizer.h), and the norm
// of many tensors. Variables are f32.
namespace replicant::kernels::cuda {

// The argument of a launch may have 32 kB.
inline constexpr int kMaxUpdateTensors = 256;
inline constexpr int kMaxUpdatePointers = 2048;

// The elements of `count` tensors in one sequence, and several groups of such
// tensors: parameters, moments, gradients. Pointer g * count + i is tensor i of
// group g.
struct TensorGroups {
  // One element: its tensor, and its index there.
  struct Place {
    int tensor;
    int64_t index;
  };

  // The place of element i of the sequence.
  REPLICANT_DEVICE Place PlaceOf(int64_t i) const {
    const int tensor = PartAt(first, count, i);
    return {tensor, i - first[tensor]};
  }
  REPLICANT_DEVICE float& At(int group, Place place) const {
    return pointers[group * count + place.tensor][place.index];
  }
  // The mean, or other multiple of the sum, of `num_gradients` groups.
  REPLICANT_DEVICE float GradientAt(int first_group, Place place) const {
    float sum = At(first_group, place);
    if (num_gradients == 1) return sum;
    for (int j = 1; j < num_gradients; ++j) sum += At(first_group + j, place);
    return sum * gradient_factor;
  }

  int count;
  int num_gradients;
  float gradient_factor;
  int64_t begin;  // first element of the sequence that the launch updates
  int64_t first[kMaxUpdateTensors];
  float* pointers[kMaxUpdatePointers];
};

// groups: parameters, momenta if momentum is not 0, gradients
struct SgdUpdate {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const TensorGroups::Place place = tensors.PlaceOf(tensors.begin + i);
    const bool has_momentum = momentum != 0.0F;
    float& p = tensors.At(0, place);
    const float d = *scale * tensors.GradientAt(has_momentum ? 2 : 1, place) +
                    weight_decay * p;
    float direction = d;
    if (has_momentum) {
      float& u = tensors.At(1, place);
      u = momentum * u + d;
      direction = is_nesterov ? d + momentum * u : u;
    }
    p -= *rate * direction;
  }

  TensorGroups tensors;
  const float* rate;
  const float* scale;
  float momentum;
  float weight_decay;
  bool is_nesterov;
};

// groups: parameters, first moments, second moments, gradients
struct AdamUpdate {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const TensorGroups::Place place = tensors.PlaceOf(tensors.begin + i);
    const double t = static_cast<double>(*step) + 1.0;
    // 1 - beta^t loses digits in f32
    const auto correction1 = static_cast<float>(1.0 - pow(beta1, t));
    const auto correction2 = static_cast<float>(1.0 - pow(beta2, t));
    const auto b1 = static_cast<float>(beta1);
    const auto b2 = static_cast<float>(beta2);
    const float g = *scale * tensors.GradientAt(3, place);
    float& m = tensors.At(1, place);
    float& v = tensors.At(2, place);
    float& p = tensors.At(0, place);
    m = b1 * m + static_cast<float>(1.0 - beta1) * g;
    v = b2 * v + static_cast<float>(1.0 - beta2) * g * g;
    p = p * (1.0F - *rate * weight_decay) -
        *rate * (m / correction1) / (sqrtf(v / correction2) + epsilon);
  }

  TensorGroups tensors;
  const float* rate;
  const float* scale;
  const int64_t* step;
  double beta1;
  double beta2;
  float epsilon;
  float weight_decay;
};

// groups: targets, sources
struct MovingAverageUpdate {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const float r = *rate;
    // at rate 0 an infinite source must not reach the target
    if (r == 0.0F) return;
    const TensorGroups::Place place = tensors.PlaceOf(tensors.begin + i);
    float& target = tensors.At(0, place);
    const float source = tensors.At(1, place);
    target = r == 1.0F ? source : (1.0F - r) * target + r * source;
  }

  TensorGroups tensors;
  const float* rate;
};

// Row i of `parts`: the sum of squares of a part of all elements.
struct SumOfSquares {
  REPLICANT_DEVICE void operator()(const Warp& warp, int64_t part) const {
    const int64_t begin = size * part / parts;
    const int64_t end = size * (part + 1) / parts;
    const float sum = warp.Sum(end - begin, [&](int64_t k) {
      const float x = tensors.At(0, tensors.PlaceOf(begin + k));
      return x * x;
    });
    if (warp.is_first_lane()) y[part] = sum;
  }

  TensorGroups tensors;
  int64_t size;
  int64_t parts;
  float* y;
};

// The square root of the sum of x [n], in one row.
struct RootOfSum {
  REPLICANT_DEVICE void operator()(const Warp& warp, int64_t /*row*/) const {
    const float sum = warp.Sum(n, [&](int64_t k) { return x[k]; });
    if (warp.is_first_lane()) *y = sqrtf(sum);
  }

  const float* x;
  float* y;
  int64_t n;
};

}  // namespace replicant::kernels::cuda
