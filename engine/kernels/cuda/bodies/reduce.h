#pragma once

#include "engine/kernels/cuda/bodies/device.h"

// Reductions. Every order of additions is fixed by the sizes.
namespace replicant::kernels::cuda {

enum class Reduction : int { kSum, kMax, kMin };

// Combines floats or integers; NaN wins in kMax and kMin.
struct Reducer {
  template <typename A>
  REPLICANT_DEVICE A operator()(A a, A b) const {
    if (kind == Reduction::kSum) return a + b;
    if (a != a) return a;
    const bool takes_b = kind == Reduction::kMax ? b > a : b < a;
    return takes_b || b != b ? b : a;
  }
  // The neutral element: leaves any other operand unchanged.
  template <typename A>
  REPLICANT_DEVICE A Neutral() const {
    if (kind == Reduction::kSum) return A{0};
    if constexpr (A{1} / A{2} == A{0}) {
      return kind == Reduction::kMax ? INT64_MIN : INT64_MAX;
    } else {
      return kind == Reduction::kMax ? A(-INFINITY) : A(INFINITY);
    }
  }

  Reduction kind;
};

// x [rows, n] with n in `parts` parts: row (row, part) of y [rows, parts] is
// the reduction of the part, divided by `divisor`.
template <typename In, typename Out>
struct ReduceRow {
  REPLICANT_DEVICE void operator()(const Warp& warp, int64_t i) const {
    using A = Arithmetic<In>;
    const int64_t part = i % parts;
    const int64_t begin = n * part / parts;
    const In* row = x + i / parts * n + begin;
    const A value = warp.Reduce(
        n * (part + 1) / parts - begin, reducer.template Neutral<A>(),
        [&](int64_t k) { return Load(row, k); }, reducer);
    if (warp.is_first_lane()) Store(y, i, value / static_cast<A>(divisor));
  }

  const In* x;
  Out* y;
  int64_t n;
  int64_t parts;
  int64_t divisor;
  Reducer reducer;
};

// x [A, n, C] with n in `parts` parts: element (a, part, c) of y [A, parts, C].
template <typename In, typename Out>
struct ReduceColumn {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    using A = Arithmetic<In>;
    const int64_t c = i % columns;
    const int64_t part = i / columns % parts;
    const int64_t a = i / columns / parts;
    A value = reducer.template Neutral<A>();
    for (int64_t k = n * part / parts; k < n * (part + 1) / parts; ++k) {
      value = reducer(value, Load(x, (a * n + k) * columns + c));
    }
    Store(y, i, value / static_cast<A>(divisor));
  }

  const In* x;
  Out* y;
  int64_t n;
  int64_t columns;
  int64_t parts;
  int64_t divisor;
  Reducer reducer;
};

// Axes of a box, the last one fastest.
struct Axes {
  REPLICANT_DEVICE int64_t OffsetOf(int64_t i) const {
    int64_t offset = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
      offset += i % sizes[axis] * strides[axis];
      i /= sizes[axis];
    }
    return offset;
  }

  int rank;
  int64_t sizes[8];
  int64_t strides[8];
};

// Output i, reduced over axes that are not neighbours.
template <typename In, typename Out>
struct ReduceBox {
  REPLICANT_DEVICE void operator()(const Warp& warp, int64_t i) const {
    using A = Arithmetic<In>;
    const int64_t base = kept.OffsetOf(i);
    const A value = warp.Reduce(
        n, reducer.template Neutral<A>(),
        [&](int64_t k) { return Load(x, base + reduced.OffsetOf(k)); },
        reducer);
    if (warp.is_first_lane()) Store(y, i, value / static_cast<A>(divisor));
  }

  const In* x;
  Out* y;
  Axes kept;
  Axes reduced;
  int64_t n;
  int64_t divisor;
  Reducer reducer;
};

}  // namespace replicant::kernels::cuda
