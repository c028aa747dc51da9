// Vectors of floats and of points in space. Included once per instruction set.
#include <hwy/highway.h>

#include <cmath>

#include "env/renderer/raycast/frame.h"

#if defined(REPLICANT_RAYCAST_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_VECTOR_INL_H_
#undef REPLICANT_RAYCAST_VECTOR_INL_H_
#else
#define REPLICANT_RAYCAST_VECTOR_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Every operation below rounds once and in the same way on every instruction
// set: multiply and add are fused only in Fma() and NegFma(), and no
// processor-specific approximation of a reciprocal or root is used. Lanes never
// mix, so a lane's result does not depend on the vector's length.
using FloatTag = hn::ScalableTag<float>;
using IntTag = hn::ScalableTag<int32_t>;
using Float = hn::Vec<FloatTag>;
using Int = hn::Vec<IntTag>;
using Mask = hn::Mask<FloatTag>;

inline constexpr FloatTag kFloat;
inline constexpr IntTag kInt;

HWY_INLINE Float Set(float v) { return hn::Set(kFloat, v); }
HWY_INLINE Float Zero() { return hn::Zero(kFloat); }
HWY_INLINE size_t NumLanes() { return hn::Lanes(kFloat); }
HWY_INLINE Float If(Mask m, Float yes, Float no) {
  return hn::IfThenElse(m, yes, no);
}
HWY_INLINE Int If(Mask m, Int yes, Int no) {
  return hn::IfThenElse(hn::RebindMask(kInt, m), yes, no);
}
HWY_INLINE Mask IntEqual(Int a, Int b) {
  return hn::RebindMask(kFloat, hn::Eq(a, b));
}
HWY_INLINE Mask IsEqual(Float a, Float b) { return hn::Eq(a, b); }
HWY_INLINE Float ToFloat(Int v) { return hn::ConvertTo(kFloat, v); }
// towards zero; |v| < 2^31
HWY_INLINE Int ToInt(Float v) { return hn::ConvertTo(kInt, v); }
HWY_INLINE Float Clamp(Float v, float low, float high) {
  return hn::Min(hn::Max(v, Set(low)), Set(high));
}
HWY_INLINE Float Gather(const float* table, Int index) {
  return hn::GatherIndex(kFloat, table, index);
}

// a * b + c, rounded once.
HWY_INLINE Float Fma(Float a, Float b, Float c) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  // Highway's own rounds twice here
  std::array<float, hn::MaxLanes(FloatTag())> x, y, z;
  hn::StoreU(a, kFloat, x.data());
  hn::StoreU(b, kFloat, y.data());
  hn::StoreU(c, kFloat, z.data());
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::fma(x[i], y[i], z[i]);
  return hn::LoadU(kFloat, x.data());
#else
  return hn::MulAdd(a, b, c);
#endif
}
// c - a * b, rounded once.
HWY_INLINE Float NegFma(Float a, Float b, Float c) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  return Fma(hn::Neg(a), b, c);
#else
  return hn::NegMulAdd(a, b, c);
#endif
}

// 1 / sqrt(v) to 5e-6, for v > 1e-37: two Newton steps from the float whose
// bits are nearly half of v's (Lomont, Fast Inverse Square Root, 2003). A root
// and a division take three times as long.
HWY_INLINE Float InverseRoot(Float v) {
  const Int bits = hn::BitCast(kInt, v);
  Float y =
      hn::BitCast(kFloat, hn::Set(kInt, 0x5F375A86) - hn::ShiftRight<1>(bits));
  const Float half = v * Set(0.5f);
  y = y * NegFma(half * y, y, Set(1.5f));
  y = y * NegFma(half * y, y, Set(1.5f));
  return y;
}
// sqrt(v) to 5e-6, for v >= 0.
HWY_INLINE Float Root(Float v) {
  return v * InverseRoot(hn::Max(v, Set(1e-36f)));
}

// first, first + 1, ...: Highway's Iota() writes lane by lane to memory.
HWY_INLINE Int CountFrom(int32_t first) {
  static_assert(hn::MaxLanes(kInt) <= kLaneNumbers.size());
  return hn::LoadU(kInt, kLaneNumbers.data()) + hn::Set(kInt, first);
}

// table[index] for 0 <= index < `size`; small tables fit into registers.
HWY_INLINE Float Lookup(const float* table, size_t size, Int index) {
  const auto lanes = static_cast<int32_t>(NumLanes());
  if (size > 2 * NumLanes()) return Gather(table, index);
  const auto place =
      hn::IndicesFromVec(kFloat, hn::And(index, hn::Set(kInt, lanes - 1)));
  const Float low = hn::TableLookupLanes(hn::LoadU(kFloat, table), place);
  if (size <= NumLanes()) return low;
  const Float high =
      hn::TableLookupLanes(hn::LoadU(kFloat, table + NumLanes()), place);
  return If(hn::RebindMask(kFloat, hn::Lt(index, hn::Set(kInt, lanes))), low,
            high);
}

// Whether all lanes hold the number of the first one, which is then `*value`.
HWY_INLINE bool IsUniform(Int v, int32_t* value) {
  *value = hn::GetLane(v);
  return hn::AllTrue(kInt, hn::Eq(v, hn::Set(kInt, *value)));
}

// Stores the lanes of `v` for which `which` holds, side by side; their number.
// Writes a whole vector.
HWY_INLINE size_t StoreChosen(hn::Mask<IntTag> which, Int v, int32_t* out) {
#if HWY_TARGET == HWY_AVX2
  // GCC copies the table of Highway's Compress() to the stack at every call
  std::array<uint8_t, 8> bits;
  hn::StoreMaskBits(kInt, which, bits.data());
  const hn::Rebind<uint8_t, IntTag> bytes;
  const Int lanes =
      hn::PromoteTo(kInt, hn::LoadU(bytes, kLanesOfBits[bits.front()].data()));
  v = hn::TableLookupLanes(v, hn::IndicesFromVec(kInt, lanes));
#else
  // unlike CompressStore(), Compress() is not microcoded on Zen 4
  v = hn::Compress(v, which);
#endif
  hn::StoreU(v, kInt, out);
  return hn::CountTrue(kInt, which);
}

// A point or direction per lane.
struct Vec3 {
  Float x, y, z;
};

HWY_INLINE Vec3 Set(const Float3& v) {
  return {Set(v[0]), Set(v[1]), Set(v[2])};
}
HWY_INLINE Vec3 operator+(Vec3 a, Vec3 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z};
}
HWY_INLINE Vec3 operator-(Vec3 a, Vec3 b) {
  return {a.x - b.x, a.y - b.y, a.z - b.z};
}
HWY_INLINE Vec3 operator*(Vec3 a, Float s) {
  return {a.x * s, a.y * s, a.z * s};
}
HWY_INLINE Vec3 operator*(Vec3 a, Vec3 b) {
  return {a.x * b.x, a.y * b.y, a.z * b.z};
}
// a * s + b
HWY_INLINE Vec3 Fma(Vec3 a, Float s, Vec3 b) {
  return {Fma(a.x, s, b.x), Fma(a.y, s, b.y), Fma(a.z, s, b.z)};
}
HWY_INLINE Float Dot(Vec3 a, Vec3 b) {
  return Fma(a.z, b.z, Fma(a.y, b.y, a.x * b.x));
}
HWY_INLINE Vec3 Cross(Vec3 a, Vec3 b) {
  return {NegFma(a.z, b.y, a.y * b.z), NegFma(a.x, b.z, a.z * b.x),
          NegFma(a.y, b.x, a.x * b.y)};
}
HWY_INLINE Vec3 Normalized(Vec3 v) {
  return v * InverseRoot(Dot(v, v) + Set(1e-30f));
}
HWY_INLINE Vec3 If(Mask m, Vec3 yes, Vec3 no) {
  return {If(m, yes.x, no.x), If(m, yes.y, no.y), If(m, yes.z, no.z)};
}
// Matrix (row-major) times vector.
HWY_INLINE Vec3 Rotate(const Float9& m, Vec3 v) {
  return {Dot(Set({m[0], m[1], m[2]}), v), Dot(Set({m[3], m[4], m[5]}), v),
          Dot(Set({m[6], m[7], m[8]}), v)};
}

// Arc tangent of y / x in [0, 2 pi), to 2e-5.
// Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 4.4.49.
HWY_INLINE Float Atan2(Float y, Float x) {
  constexpr float kPi = 3.14159265f;
  const Float ax = hn::Abs(x);
  const Float ay = hn::Abs(y);
  const Float big = hn::Max(hn::Max(ax, ay), Set(1e-30f));
  const Float q = hn::Min(ax, ay) / big;
  const Float s = q * q;
  Float a = Set(0.0208351f);
  a = Fma(a, s, Set(-0.0851330f));
  a = Fma(a, s, Set(0.1801410f));
  a = Fma(a, s, Set(-0.3302995f));
  a = Fma(a, s, Set(0.9998660f));
  a = a * q;
  a = If(ay > ax, Set(kPi / 2) - a, a);
  a = If(x < Zero(), Set(kPi) - a, a);
  return If(y < Zero(), Set(2 * kPi) - a, a);
}

// Base-2 logarithm of v > 0 to 4e-6, and its parts: v = 2^exponent * mantissa
// with mantissa in [1, 2).
HWY_INLINE void SplitFloat(Float v, Float* exponent, Float* mantissa) {
  const Int bits = hn::BitCast(kInt, v);
  *exponent = ToFloat(hn::ShiftRight<23>(bits) - hn::Set(kInt, 127));
  *mantissa =
      hn::BitCast(kFloat, hn::Or(hn::And(bits, hn::Set(kInt, 0x007FFFFF)),
                                 hn::Set(kInt, 0x3F800000)));
}

HWY_INLINE Float Log2(Float v) {
  Float exponent, m;
  SplitFloat(v, &exponent, &m);
  // centre on 1, then log2(m) = 2 / ln 2 * atanh((m - 1) / (m + 1))
  const Mask is_large = m > Set(1.41421356f);
  m = If(is_large, m * Set(0.5f), m);
  exponent = If(is_large, exponent + Set(1.0f), exponent);
  const Float q = (m - Set(1.0f)) / (m + Set(1.0f));
  const Float s = q * q;
  Float a = Set(1.0f / 7);
  a = Fma(a, s, Set(1.0f / 5));
  a = Fma(a, s, Set(1.0f / 3));
  a = Fma(a, s, Set(1.0f));
  return Fma(Set(2.88539008f) * q, a, exponent);
}

// 2^v for v <= 0, to 3e-7 relative; 0 below 2^-126.
HWY_INLINE Float Exp2(Float v) {
  const Mask is_tiny = v < Set(-126.0f);
  v = hn::Max(v, Set(-126.0f));
  const Float whole = hn::Floor(v);
  // Taylor series of e^(f ln 2) about f = 1/2
  const Float f = (v - whole - Set(0.5f)) * Set(0.693147181f);
  Float a = Set(1.0f / 720);
  a = Fma(a, f, Set(1.0f / 120));
  a = Fma(a, f, Set(1.0f / 24));
  a = Fma(a, f, Set(1.0f / 6));
  a = Fma(a, f, Set(0.5f));
  a = Fma(a, f, Set(1.0f));
  a = Fma(a, f, Set(1.0f));
  a = a * Set(1.41421356f);
  const Int scale = hn::ShiftLeft<23>(ToInt(whole) + hn::Set(kInt, 127));
  return If(is_tiny, Zero(), a * hn::BitCast(kFloat, scale));
}

// Raises all `v`, in [0, 1], to a power, using repeated squaring for the whole
// exponents that materials usually have.
template <size_t kCount>
HWY_INLINE void RaiseAll(float exponent, std::array<Float, kCount>& v) {
  const int whole = static_cast<int>(exponent);
  if (static_cast<float>(whole) == exponent && whole >= 0 && whole <= 1024) {
    std::array<Float, kCount> result;
    for (Float& r : result) r = Set(1.0f);
    for (int bits = whole; bits != 0; bits >>= 1) {
      for (size_t k = 0; k < kCount; ++k) {
        if ((bits & 1) != 0) result[k] = result[k] * v[k];
        v[k] = v[k] * v[k];
      }
    }
    v = result;
    return;
  }
  for (Float& x : v) {
    const Float power = Exp2(Set(exponent) * Log2(hn::Max(x, Set(1e-30f))));
    x = hn::IfThenElseZero(x > Zero(), power);
  }
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
