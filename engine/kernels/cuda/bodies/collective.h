#pragma once

#include "engine/kernels/cuda/bodies/device.h"

// The arithmetic of replicas: reductions over replicas that share a device, and
// buckets of tensors.
namespace replicant::kernels::cuda {

inline constexpr int kMaxCombined = 64;
inline constexpr int kMaxBucketParts = 256;

enum class CombineOp { kSum, kMin, kMax, kProd };

// outputs[j][i] = ((inputs[0][i] op inputs[1][i]) op ...) for i from `begin`
// on. bf16 is combined in f32 and rounded once.
template <typename T>
struct CombineReplicas {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const int64_t at = begin + i;
    Arithmetic<T> value = Load(inputs[0], at);
    for (int j = 1; j < num_inputs; ++j) {
      value = Combine(value, Load(inputs[j], at));
    }
    for (int j = 0; j < num_outputs; ++j) Store(outputs[j], at, value);
  }

  REPLICANT_DEVICE Arithmetic<T> Combine(Arithmetic<T> a,
                                         Arithmetic<T> b) const {
    switch (op) {
      case CombineOp::kSum:
        return a + b;
      case CombineOp::kMin:
        return b < a ? b : a;
      case CombineOp::kMax:
        return a < b ? b : a;
      case CombineOp::kProd:
        return a * b;
    }
    return a;
  }

  CombineOp op;
  int num_inputs;
  int num_outputs;
  int64_t begin;
  const T* inputs[kMaxCombined];
  T* outputs[kMaxCombined];
};

// Up to kMaxBucketParts tensors, one after the other: first[p] is the place of
// part p in the bucket.
template <typename T>
struct BucketParts {
  REPLICANT_DEVICE T& At(int64_t i) const {
    const int part = PartAt(first, count, i);
    return data[part][i - first[part]];
  }

  int count;
  int64_t first[kMaxBucketParts];
  T* data[kMaxBucketParts];
};

template <typename From, typename To>
struct PackBucket {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    bucket[i] = static_cast<To>(static_cast<float>(parts.At(i)));
  }

  BucketParts<From> parts;
  To* bucket;
};

template <typename From, typename To>
struct UnpackBucket {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    parts.At(i) = static_cast<To>(static_cast<float>(bucket[i]) * factor);
  }

  BucketParts<To> parts;
  const From* bucket;
  float factor;
};

}  // namespace replicant::kernels::cuda
