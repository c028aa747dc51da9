// Products with the small constant matrices of Winograd's transforms. Included
// once per instruction set.
#include <hwy/highway.h>

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#if defined(REPLICANT_KERNELS_CPU_TILE_TRANSFORM_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_KERNELS_CPU_TILE_TRANSFORM_INL_H_
#undef REPLICANT_KERNELS_CPU_TILE_TRANSFORM_INL_H_
#else
#define REPLICANT_KERNELS_CPU_TILE_TRANSFORM_INL_H_
#endif

// The loops below are lambdas. Compilers do not inline the larger ones, which
// then pass a tile through memory: an image's transform takes twice as long.
#undef WINOGRAD_INLINE
#define WINOGRAD_INLINE HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace replicant::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

template <size_t kRows, size_t kColumns>
using Matrix = std::array<std::array<float, kColumns>, kRows>;

template <size_t kRows, size_t kColumns>
constexpr Matrix<kColumns, kRows> Transposed(
    const Matrix<kRows, kColumns>& matrix) {
  Matrix<kColumns, kRows> result{};
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t j = 0; j < kColumns; ++j) result[j][i] = matrix[i][j];
  }
  return result;
}

// Calls run(std::integral_constant 0), ... (kCount - 1): a loop with a constant
// index.
template <size_t kCount, typename Run>
HWY_INLINE void Unrolled(const Run& run) {
  [&]<size_t... kI>(std::index_sequence<kI...>) WINOGRAD_INLINE {
    (run(std::integral_constant<size_t, kI>()), ...);
  }
  (std::make_index_sequence<kCount>());
}

// sum_k kL[kRow][k] x[k], of vectors of floats or, if the factors are 0, 1 and
// -1 and the first of them is 1, of integers.
template <const auto& kL, size_t kRow, typename Vector>
HWY_INLINE Vector Row(const Vector* x) {
  const hn::DFromV<Vector> d;
  constexpr auto kFactors = kL[kRow];
  constexpr size_t kBegin = [=] {
    size_t k = 0;
    while (kFactors[k] == 0.0f) ++k;
    return k;
  }();
  Vector sum = x[kBegin];
  if constexpr (kFactors[kBegin] != 1.0f) {
    sum = hn::Mul(hn::Set(d, kFactors[kBegin]), sum);
  }
  Unrolled<kFactors.size()>([&](auto k) WINOGRAD_INLINE {
    constexpr float kFactor = kFactors[k];
    if constexpr (k() <= kBegin || kFactor == 0.0f) {
      // nothing to add
    } else if constexpr (kFactor == 1.0f) {
      sum = hn::Add(sum, x[k]);
    } else if constexpr (kFactor == -1.0f) {
      sum = hn::Sub(sum, x[k]);
    } else {
      sum = hn::MulAdd(hn::Set(d, kFactor), x[k], sum);
    }
  });
  return sum;
}

// L t L^T for a tile t of vectors: load(i, j) returns its elements, store(i, j,
// value) takes the result's.
template <const auto& kL, typename Load, typename Store>
HWY_INLINE void TransformTile(const Load& load, const Store& store) {
  constexpr size_t kOut = kL.size();
  constexpr size_t kIn = kL[0].size();
  V half[kOut][kIn];
  Unrolled<kIn>([&](auto j) WINOGRAD_INLINE {
    V column[kIn];
    Unrolled<kIn>([&](auto i) WINOGRAD_INLINE { column[i] = load(i, j); });
    Unrolled<kOut>([&](auto i)
                       WINOGRAD_INLINE { half[i][j] = Row<kL, i>(column); });
  });
  Unrolled<kOut>([&](auto i) WINOGRAD_INLINE {
    Unrolled<kOut>([&](auto j)
                       WINOGRAD_INLINE { store(i, j, Row<kL, j>(half[i])); });
  });
}

}  // namespace replicant::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
