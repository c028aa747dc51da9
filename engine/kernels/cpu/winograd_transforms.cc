#include "engine/kernels/cpu/winograd_transforms.h"

#include "base/instruction_sets.h"
#include "base/tensor/bfloat16.h"

// Compiled once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/winograd_transforms.cc"
// clang-format off: foreach_target.h comes before what it is to repeat
#include <hwy/foreach_target.h>
// clang-format on

#include "engine/kernels/cpu/tile_transform-inl.h"

HWY_BEFORE_NAMESPACE();
namespace replicant::kernels::cpu::HWY_NAMESPACE {

// The points are 0, +-kA, +-kB and infinity.
constexpr float kA = 0.75f;
constexpr float kB = 1.5f;
constexpr float kA2 = kA * kA;
constexpr float kB2 = kB * kB;
// 1 over the product of a point's distances to the others
constexpr float kOfZero = 1 / (kA2 * kB2);
constexpr float kOfA = 1 / (2 * kA2 * (kA2 - kB2));
constexpr float kOfB = 1 / (2 * kB2 * (kB2 - kA2));

// clang-format off
// B^T
constexpr Matrix<6, 6> kImage = {{
    {kA2 * kB2, 0, -kA2 - kB2, 0, 1, 0},
    {0, -kA * kB2, -kB2, kA, 1, 0},
    {0, kA * kB2, -kB2, -kA, 1, 0},
    {0, -kA2 * kB, -kA2, kB, 1, 0},
    {0, kA2 * kB, -kA2, -kB, 1, 0},
    {0, kA2 * kB2, 0, -kA2 - kB2, 0, 1}}};
// A^T
constexpr Matrix<4, 6> kResult = {{
    {1, 1, 1, 1, 1, 0},
    {0, kA, -kA, kB, -kB, 0},
    {0, kA2, kA2, kB2, kB2, 0},
    {0, kA * kA2, -kA * kA2, kB * kB2, -kB * kB2, 1}}};
// G
constexpr Matrix<6, 3> kWeights = {{
    {kOfZero, 0, 0},
    {kOfA, kA * kOfA, kA2 * kOfA},
    {kOfA, -kA * kOfA, kA2 * kOfA},
    {kOfB, kB * kOfB, kB2 * kOfB},
    {kOfB, -kB * kOfB, kB2 * kOfB},
    {0, 0, 1}}};
// clang-format on
constexpr Matrix<6, 4> kResultGradient = Transposed(kResult);
constexpr Matrix<3, 6> kWeightGradient = Transposed(kWeights);

HWY_INLINE V LoadFloats(const float* x) { return hn::LoadU(D(), x); }
HWY_INLINE V LoadFloats(const BFloat16* x) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> half;
  return hn::BitCast(
      D(), hn::ShiftLeft<16>(hn::PromoteTo(
               du, hn::LoadU(half, reinterpret_cast<const uint16_t*>(x)))));
}

// Pixels of T to the 36 positions.
template <const auto& kL, typename T>
HWY_INLINE void FromPixels(const std::byte* const* pixels, size_t n,
                           float* positions, const PositionPlaces& places) {
  constexpr size_t kSide = kL[0].size();
  const size_t stride = places.stride;
  for (size_t c = 0; c < n; c += hn::Lanes(D())) {
    float* tile = positions + places.OfChannel(c);
    TransformTile<kL>(
        [&](size_t i, size_t j) WINOGRAD_INLINE {
          return LoadFloats(reinterpret_cast<const T*>(pixels[i * kSide + j]) +
                            c);
        },
        [&](size_t i, size_t j, V value) WINOGRAD_INLINE {
          hn::StoreU(value, D(), tile + (i * kWinogradInput + j) * stride);
        });
  }
}

template <const auto& kL>
HWY_INLINE void FromStored(const std::byte* const* pixels, DType dtype,
                           size_t n, float* positions,
                           const PositionPlaces& places) {
  if (dtype == DType::kBF16) {
    FromPixels<kL, BFloat16>(pixels, n, positions, places);
  } else {
    FromPixels<kL, float>(pixels, n, positions, places);
  }
}

void Image(const std::byte* const* pixels, DType dtype, size_t n,
           float* positions, const PositionPlaces& places) {
  FromStored<kImage>(pixels, dtype, n, positions, places);
}

void ResultGradient(const std::byte* const* pixels, DType dtype, size_t n,
                    float* positions, const PositionPlaces& places) {
  FromStored<kResultGradient>(pixels, dtype, n, positions, places);
}

void Result(const float* positions, const PositionPlaces& places,
            const float* bias, size_t n, float* const* pixels) {
  const D d;
  const size_t stride = places.stride;
  for (size_t c = 0; c < n; c += hn::Lanes(d)) {
    const float* tile = positions + places.OfChannel(c);
    const V offset = bias == nullptr ? hn::Zero(d) : hn::LoadU(d, bias + c);
    TransformTile<kResult>(
        [&](size_t i, size_t j) WINOGRAD_INLINE {
          return hn::LoadU(d, tile + (i * kWinogradInput + j) * stride);
        },
        [&](size_t i, size_t j, V value) WINOGRAD_INLINE {
          hn::StoreU(hn::Add(value, offset), d,
                     pixels[i * kWinogradOutput + j] + c);
        });
  }
}

void Weights(const float* weights, size_t n, float* positions,
             const PositionPlaces& places) {
  const D d;
  const size_t stride = places.stride;
  for (size_t c = 0; c < n; c += hn::Lanes(d)) {
    float* tile = positions + places.OfChannel(c);
    TransformTile<kWeights>(
        [&](size_t i, size_t j) WINOGRAD_INLINE {
          return hn::LoadU(d, weights + (i * 3 + j) * n + c);
        },
        [&](size_t i, size_t j, V value) WINOGRAD_INLINE {
          hn::StoreU(value, d, tile + (i * kWinogradInput + j) * stride);
        });
  }
}

void WeightGradient(const float* positions, const PositionPlaces& places,
                    size_t n, float* weights) {
  const D d;
  const size_t stride = places.stride;
  for (size_t c = 0; c < n; c += hn::Lanes(d)) {
    const float* tile = positions + places.OfChannel(c);
    TransformTile<kWeightGradient>(
        [&](size_t i, size_t j) WINOGRAD_INLINE {
          return hn::LoadU(d, tile + (i * kWinogradInput + j) * stride);
        },
        [&](size_t i, size_t j, V value) WINOGRAD_INLINE {
          hn::StoreU(value, d, weights + (i * 3 + j) * n + c);
        });
  }
}

}  // namespace replicant::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replicant::kernels::cpu {

HWY_EXPORT(Image);
HWY_EXPORT(ResultGradient);
HWY_EXPORT(Result);
HWY_EXPORT(Weights);
HWY_EXPORT(WeightGradient);

void TransformImage(const std::byte* const* pixels, DType dtype, size_t n,
                    float* positions, const PositionPlaces& places) {
  HWY_DYNAMIC_DISPATCH(Image)(pixels, dtype, n, positions, places);
}

void TransformResultGradient(const std::byte* const* pixels, DType dtype,
                             size_t n, float* positions,
                             const PositionPlaces& places) {
  HWY_DYNAMIC_DISPATCH(ResultGradient)(pixels, dtype, n, positions, places);
}

void TransformResult(const float* positions, const PositionPlaces& places,
                     const float* bias, size_t n, float* const* pixels) {
  HWY_DYNAMIC_DISPATCH(Result)(positions, places, bias, n, pixels);
}

void TransformWeights(const float* weights, size_t n, float* positions,
                      const PositionPlaces& places) {
  HWY_DYNAMIC_DISPATCH(Weights)(weights, n, positions, places);
}

void TransformWeightGradient(const float* positions,
                             const PositionPlaces& places, size_t n,
                             float* weights) {
  HWY_DYNAMIC_DISPATCH(WeightGradient)(positions, places, n, weights);
}

}  // namespace replicant::kernels::cpu
#endif  // HWY_ONCE
