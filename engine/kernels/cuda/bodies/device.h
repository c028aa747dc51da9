#pragma once

#include <cmath>
#include <cstdint>

#include "base/tensor/bfloat16.h"

// Shared parts of the bodies of own kernels.
//
// A body is a plain struct: its fields are the kernel's argument (pointers to
// device memory, sizes), and its call operator computes one element or one row.
// The same source is compiled for the device (own_kernels.cu) and for the host
// (tests/support/fake_cuda), where tests compare it with the reference backend.
#ifdef __CUDACC__
#define REPLICANT_DEVICE __host__ __device__
// Before a loop over an array of constant size, which must stay in registers.
#define REPLICANT_UNROLL _Pragma("unroll")
#else
#define REPLICANT_DEVICE
#define REPLICANT_UNROLL
#endif

namespace replicant::kernels::cuda {

// The type in which elements of T are computed: float, or int64_t for integers.
template <typename T>
struct ArithmeticOf {
  using Type = float;
};
template <>
struct ArithmeticOf<int32_t> {
  using Type = int64_t;
};
template <>
struct ArithmeticOf<int64_t> {
  using Type = int64_t;
};
template <typename T>
using Arithmetic = typename ArithmeticOf<T>::Type;

// The part of a sequence of `count` parts that holds element i; first[p] is the
// place of part p's first element.
REPLICANT_DEVICE inline int PartAt(const int64_t* first, int count, int64_t i) {
  int low = 0;
  int high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (first[middle] <= i) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

template <typename T>
REPLICANT_DEVICE Arithmetic<T> Load(const T* data, int64_t i) {
  return static_cast<Arithmetic<T>>(data[i]);
}
template <typename T>
REPLICANT_DEVICE void Store(T* data, int64_t i, Arithmetic<T> value) {
  data[i] = static_cast<T>(value);
}

// Neighbours in memory, which one thread loads or stores at once; the address
// is a multiple of their size.
template <typename T, int kLanes>
struct alignas(sizeof(T) * kLanes) Pack {
  REPLICANT_DEVICE static Pack At(const T* data, int64_t i) {
    return *reinterpret_cast<const Pack*>(data + i);
  }
  REPLICANT_DEVICE void StoreAt(T* data, int64_t i) const {
    *reinterpret_cast<Pack*>(data + i) = *this;
  }
  REPLICANT_DEVICE float Get(int lane) const {
    return static_cast<float>(values[lane]);
  }
  REPLICANT_DEVICE void Set(int lane, float value) {
    values[lane] = static_cast<T>(value);
  }

  T values[kLanes];
};

// Lanes of the longest pack that a device loads at once, 16 bytes.
template <typename T>
inline constexpr int kMaxLanes = static_cast<int>(16 / sizeof(T));

// Indices of rows, i32 or i64.
struct Indices {
  REPLICANT_DEVICE int64_t operator[](int64_t i) const {
    return is_i64 ? static_cast<const int64_t*>(data)[i]
                  : static_cast<const int32_t*>(data)[i];
  }

  const void* data;
  bool is_i64;
};

// The 32 threads that compute one row together. Every thread of the warp makes
// the same calls.
//
// On the host one thread does the work of all, adding in the order of the
// device, so that a row has the same roundings on both.
class Warp {
 public:
  static constexpr int kSize = 32;

#ifdef __CUDA_ARCH__
  REPLICANT_DEVICE explicit Warp(int lane) : lane_(lane) {}
  REPLICANT_DEVICE bool is_first_lane() const { return lane_ == 0; }
  // Lets every thread see what the others have written to memory.
  REPLICANT_DEVICE void Synchronize() const { __syncwarp(); }

  // Calls f(i) for all i < n.
  template <typename Function>
  REPLICANT_DEVICE void ForEach(int64_t n, const Function& f) const {
    for (int64_t i = lane_; i < n; i += kSize) f(i);
  }

  // combine(... combine(start, term(i)) ...) for all i < n, in every thread.
  // `start` is neutral: combine(start, x) = x.
  template <typename T, typename Term, typename Combine>
  REPLICANT_DEVICE T Reduce(int64_t n, T start, const Term& term,
                            const Combine& combine) const {
    T value = start;
    for (int64_t i = lane_; i < n; i += kSize) value = combine(value, term(i));
    for (int distance = kSize / 2; distance > 0; distance /= 2) {
      value = combine(value, __shfl_xor_sync(~0U, value, distance));
    }
    return value;
  }

 private:
  int lane_;
#else
  REPLICANT_DEVICE bool is_first_lane() const { return true; }
  REPLICANT_DEVICE void Synchronize() const {}

  template <typename Function>
  REPLICANT_DEVICE void ForEach(int64_t n, const Function& f) const {
    for (int64_t i = 0; i < n; ++i) f(i);
  }

  template <typename T, typename Term, typename Combine>
  REPLICANT_DEVICE T Reduce(int64_t n, T start, const Term& term,
                            const Combine& combine) const {
    T values[kSize];
    for (T& value : values) value = start;
    for (int64_t i = 0; i < n; ++i) {
      values[i % kSize] = combine(values[i % kSize], term(i));
    }
    for (int distance = kSize / 2; distance > 0; distance /= 2) {
      T next[kSize];
      for (int lane = 0; lane < kSize; ++lane) {
        next[lane] = combine(values[lane], values[lane ^ distance]);
      }
      for (int lane = 0; lane < kSize; ++lane) values[lane] = next[lane];
    }
    return values[0];
  }
#endif

 public:
  template <typename Term>
  REPLICANT_DEVICE float Sum(int64_t n, const Term& term) const {
    return Reduce(n, 0.0F, term, [](float a, float b) { return a + b; });
  }
  // NaN wins.
  template <typename Term>
  REPLICANT_DEVICE float Max(int64_t n, const Term& term) const {
    return Reduce(n, -INFINITY, term, [](float a, float b) {
      return a != a ? a : (b > a || b != b ? b : a);
    });
  }
};

}  // namespace replicant::kernels::cuda
