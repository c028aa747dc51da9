#include "engine/kernels/cpu/vector_functions.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "base/instruction_sets.h"

// Compiled once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/vector_functions.cc"
// clang-format off: foreach_target.h comes before the code that it repeats
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace replicant::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using graph::ScalarOp;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

HWY_INLINE V One() { return hn::Set(D(), 1.0f); }
HWY_INLINE V Zero() { return hn::Zero(D()); }
HWY_INLINE V Truth(hn::Mask<D> mask) { return hn::IfThenElseZero(mask, One()); }

// The library does not document its polynomials for NaN.
HWY_INLINE V KeepNaN(V a, V value) {
  return hn::IfThenElse(hn::IsNaN(a), a, value);
}

HWY_INLINE V Exp(V a) {
  // ln of the largest float
  const V limit = hn::Set(D(), 88.7228394f);
  const V e = hn::Exp(D(), hn::Min(a, limit));
  return KeepNaN(a,
                 hn::IfThenElse(hn::Gt(a, limit), hn::Set(D(), kInfinity), e));
}

HWY_INLINE V Expm1(V a) {
  const V limit = hn::Set(D(), 88.7228394f);
  const V e = hn::Expm1(D(), hn::Min(a, limit));
  return KeepNaN(a,
                 hn::IfThenElse(hn::Gt(a, limit), hn::Set(D(), kInfinity), e));
}

HWY_INLINE V Log(V a) {
  const V infinity = hn::Set(D(), kInfinity);
  V log = hn::Log(D(), a);
  log = hn::IfThenElse(hn::Eq(a, infinity), infinity, log);
  log = hn::IfThenElse(hn::Eq(a, Zero()), hn::Neg(infinity), log);
  const V nan = hn::Set(D(), std::numeric_limits<float>::quiet_NaN());
  return KeepNaN(a, hn::IfThenElse(hn::Lt(a, Zero()), nan, log));
}

// max(a, 0) + ln(1 + e^-|a|), which cannot overflow
HWY_INLINE V Softplus(V a) {
  const V tail = hn::Log1p(D(), hn::Exp(D(), hn::Neg(hn::Abs(a))));
  return KeepNaN(a, hn::Max(a, Zero()) + tail);
}

// 1 / (1 + e^-a), from e^-|a|
HWY_INLINE V Sigmoid(V a) {
  const V e = hn::Exp(D(), hn::Neg(hn::Abs(a)));
  const V upper = One() / (One() + e);
  return KeepNaN(a, hn::IfThenElse(hn::Lt(a, Zero()), e * upper, upper));
}

// sin(a) or cos(a). The library's reduction to one period loses digits of large
// numbers: kExact, which is slow, computes those, infinities and NaN.
template <float (*kExact)(float)>
HWY_INLINE V Periodic(V a, V value) {
  constexpr float kLimit = 30000.0f;
  const D d;
  if (HWY_LIKELY(hn::AllTrue(d, hn::Lt(hn::Abs(a), hn::Set(d, kLimit))))) {
    return value;
  }
  alignas(64) float arguments[hn::MaxLanes(D())];
  alignas(64) float values[hn::MaxLanes(D())];
  hn::Store(a, d, arguments);
  hn::Store(value, d, values);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    if (!(std::fabs(arguments[i]) < kLimit)) values[i] = kExact(arguments[i]);
  }
  return hn::Load(d, values);
}

HWY_INLINE V Sign(V a) {
  return KeepNaN(a, Truth(hn::Gt(a, Zero())) - Truth(hn::Lt(a, Zero())));
}

HWY_INLINE V Select(hn::Mask<D> mask, V yes, V no) {
  return hn::IfThenElse(mask, yes, no);
}

// Applies f(a, b, c, p, q) to all elements; `kArity` operands are read.
template <size_t kArity, typename F>
HWY_INLINE void Apply(const float* const* operands, float p, float q,
                      float* out, size_t n, const F& f) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const V vp = hn::Set(d, p);
  const V vq = hn::Set(d, q);
  const auto load = [&](size_t k, size_t i) HWY_ATTR {
    return k < kArity ? hn::LoadU(d, operands[k] + i) : hn::Zero(d);
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(f(load(0, i), load(1, i), load(2, i), vp, vq), d, out + i);
  }
  if (i == n) return;
  // copy the rest to full vectors: the same code gives the same bits
  alignas(64) float rest[4][hn::MaxLanes(D())] = {};
  for (size_t k = 0; k < kArity; ++k) {
    for (size_t j = i; j < n; ++j) rest[k][j - i] = operands[k][j];
  }
  hn::Store(f(hn::Load(d, rest[0]), hn::Load(d, rest[1]), hn::Load(d, rest[2]),
              vp, vq),
            d, rest[3]);
  for (size_t j = i; j < n; ++j) out[j] = rest[3][j - i];
}

// The functions of one, two and three operands; `F` has no state. A unary one
// may also take the parameters p and q.
template <typename F>
VectorFunction Unary(F) {
  return [](const float* a, const float* b, const float* c, float p, float q,
            float* out, size_t n) HWY_ATTR {
    const float* const operands[] = {a, b, c};
    Apply<1>(operands, p, q, out, n,
             [](V va, V, V, [[maybe_unused]] V vp, [[maybe_unused]] V vq)
                 HWY_ATTR {
                   if constexpr (std::is_invocable_v<F, V>) {
                     return F{}(va);
                   } else {
                     return F{}(va, vp, vq);
                   }
                 });
  };
}

template <typename F>
VectorFunction Binary(F) {
  return [](const float* a, const float* b, const float* c, float p, float q,
            float* out, size_t n) HWY_ATTR {
    const float* const operands[] = {a, b, c};
    Apply<2>(operands, p, q, out, n,
             [](V va, V vb, V, V, V) HWY_ATTR { return F{}(va, vb); });
  };
}

template <typename F>
VectorFunction Ternary(F) {
  return [](const float* a, const float* b, const float* c, float p, float q,
            float* out, size_t n) HWY_ATTR {
    const float* const operands[] = {a, b, c};
    Apply<3>(operands, p, q, out, n,
             [](V va, V vb, V vc, V, V) HWY_ATTR { return F{}(va, vb, vc); });
  };
}

VectorFunction Find(ScalarOp op) {
  switch (op) {
    case ScalarOp::kCopy:
      return Unary([](V a) HWY_ATTR { return a; });
    case ScalarOp::kNegate:
      return Unary([](V a) HWY_ATTR { return hn::Neg(a); });
    case ScalarOp::kAbs:
      return Unary([](V a) HWY_ATTR { return hn::Abs(a); });
    case ScalarOp::kSign:
      return Unary([](V a) HWY_ATTR { return Sign(a); });
    case ScalarOp::kExp:
      return Unary([](V a) HWY_ATTR { return Exp(a); });
    case ScalarOp::kLog:
      return Unary([](V a) HWY_ATTR { return Log(a); });
    case ScalarOp::kSqrt:
      return Unary([](V a) HWY_ATTR { return hn::Sqrt(a); });
    case ScalarOp::kSquare:
      return Unary([](V a) HWY_ATTR { return a * a; });
    case ScalarOp::kSin:
      return Unary(
          [](V a) HWY_ATTR { return Periodic<&std::sin>(a, hn::Sin(D(), a)); });
    case ScalarOp::kCos:
      return Unary(
          [](V a) HWY_ATTR { return Periodic<&std::cos>(a, hn::Cos(D(), a)); });
    case ScalarOp::kTanh:
      return Unary([](V a) HWY_ATTR { return KeepNaN(a, hn::Tanh(D(), a)); });
    case ScalarOp::kSigmoid:
      return Unary([](V a) HWY_ATTR { return Sigmoid(a); });
    case ScalarOp::kSoftplus:
      return Unary([](V a) HWY_ATTR { return Softplus(a); });
    case ScalarOp::kRelu:
      return Unary(
          [](V a) HWY_ATTR { return Select(hn::Le(a, Zero()), Zero(), a); });
    case ScalarOp::kLeakyRelu:
      return Unary([](V a, V p, V) HWY_ATTR {
        return Select(hn::Gt(a, Zero()), a, p * a);
      });
    case ScalarOp::kElu:
      return Unary([](V a, V p, V) HWY_ATTR {
        return Select(hn::Gt(a, Zero()), a, p * Expm1(a));
      });
    case ScalarOp::kClip:
      return Unary([](V a, V p, V q) HWY_ATTR {
        return KeepNaN(a, hn::Min(hn::Max(a, p), q));
      });
    case ScalarOp::kAffine:
      return Unary([](V a, V p, V q) HWY_ATTR { return hn::MulAdd(p, a, q); });
    case ScalarOp::kNot:
      return Unary([](V a) HWY_ATTR { return Truth(hn::Eq(a, Zero())); });
    case ScalarOp::kAdd:
      return Binary([](V a, V b) HWY_ATTR { return a + b; });
    case ScalarOp::kSubtract:
      return Binary([](V a, V b) HWY_ATTR { return a - b; });
    case ScalarOp::kMultiply:
      return Binary([](V a, V b) HWY_ATTR { return a * b; });
    case ScalarOp::kDivide:
      return Binary([](V a, V b) HWY_ATTR { return a / b; });
    case ScalarOp::kModulo:
      return Binary([](V a, V b) HWY_ATTR {
        return Select(hn::Eq(b, Zero()), Zero(),
                      hn::NegMulAdd(b, hn::Floor(a / b), a));
      });
    case ScalarOp::kMinimum:
      return Binary([](V a, V b) HWY_ATTR {
        return KeepNaN(a, KeepNaN(b, Select(hn::Lt(b, a), b, a)));
      });
    case ScalarOp::kMaximum:
      return Binary([](V a, V b) HWY_ATTR {
        return KeepNaN(a, KeepNaN(b, Select(hn::Gt(b, a), b, a)));
      });
    case ScalarOp::kLess:
      return Binary([](V a, V b) HWY_ATTR { return Truth(hn::Lt(a, b)); });
    case ScalarOp::kLessEqual:
      return Binary([](V a, V b) HWY_ATTR { return Truth(hn::Le(a, b)); });
    case ScalarOp::kGreater:
      return Binary([](V a, V b) HWY_ATTR { return Truth(hn::Gt(a, b)); });
    case ScalarOp::kGreaterEqual:
      return Binary([](V a, V b) HWY_ATTR { return Truth(hn::Ge(a, b)); });
    case ScalarOp::kEqual:
      return Binary([](V a, V b) HWY_ATTR { return Truth(hn::Eq(a, b)); });
    case ScalarOp::kNotEqual:
      return Binary([](V a, V b) HWY_ATTR { return Truth(hn::Ne(a, b)); });
    case ScalarOp::kAnd:
      return Binary([](V a, V b) HWY_ATTR {
        return Truth(hn::And(hn::Ne(a, Zero()), hn::Ne(b, Zero())));
      });
    case ScalarOp::kOr:
      return Binary([](V a, V b) HWY_ATTR {
        return Truth(hn::Or(hn::Ne(a, Zero()), hn::Ne(b, Zero())));
      });
    case ScalarOp::kSelect:
      return Ternary([](V a, V b, V c)
                         HWY_ATTR { return Select(hn::Ne(a, Zero()), b, c); });
  }
  return nullptr;
}

using DU = hn::RebindToUnsigned<D>;
using DHalf = hn::Rebind<uint16_t, D>;

// The upper halves of floats, rounded to bf16 as by BFloat16::Round().
HWY_INLINE hn::Vec<DU> RoundedHalves(V a) {
  const DU du;
  const hn::Vec<DU> word = hn::BitCast(du, a);
  const hn::Vec<DU> upper = hn::ShiftRight<16>(word);
  const hn::Vec<DU> rounding =
      hn::Add(hn::Set(du, 0x7FFFu), hn::And(upper, hn::Set(du, 1u)));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(a)),
                        hn::Or(upper, hn::Set(du, 0x40u)),
                        hn::ShiftRight<16>(hn::Add(word, rounding)));
}

HWY_INLINE V RoundToBF16(V a) {
  return hn::BitCast(D(), hn::ShiftLeft<16>(RoundedHalves(a)));
}

VectorFunction FindRounding() {
  return Unary([](V a) HWY_ATTR { return RoundToBF16(a); });
}

void HalvesToFloats(const BFloat16* x, size_t n, float* out) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const auto* halves = reinterpret_cast<const uint16_t*>(x);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const hn::Vec<DU> word =
        hn::ShiftLeft<16>(hn::PromoteTo(DU(), hn::LoadU(DHalf(), halves + i)));
    hn::StoreU(hn::BitCast(d, word), d, out + i);
  }
  for (; i < n; ++i) out[i] = static_cast<float>(x[i]);
}

void FloatsToHalves(const float* x, size_t n, BFloat16* out) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  auto* halves = reinterpret_cast<uint16_t*>(out);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const hn::Vec<DU> upper = RoundedHalves(hn::LoadU(d, x + i));
    // they are below 2^16, so that a signed type holds them
    hn::StoreU(
        hn::DemoteTo(DHalf(), hn::BitCast(hn::RebindToSigned<D>(), upper)),
        DHalf(), halves + i);
  }
  for (; i < n; ++i) out[i] = BFloat16(x[i]);
}

// kRows rows at once: independent sums hide each other's latency.
template <size_t kRows>
HWY_INLINE void RowsTimesVector(const float* matrix, size_t n, const float* x,
                                float* y) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  V sums[kRows];
  for (size_t r = 0; r < kRows; ++r) sums[r] = Zero();
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V vx = hn::LoadU(d, x + i);
    for (size_t r = 0; r < kRows; ++r) {
      sums[r] = hn::MulAdd(hn::LoadU(d, matrix + r * n + i), vx, sums[r]);
    }
  }
  if (i < n) {
    const auto rest = hn::FirstN(d, n - i);
    const V vx = hn::MaskedLoad(rest, d, x + i);
    for (size_t r = 0; r < kRows; ++r) {
      sums[r] =
          hn::MulAdd(hn::MaskedLoad(rest, d, matrix + r * n + i), vx, sums[r]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    y[r] = hn::GetLane(hn::SumOfLanes(d, sums[r]));
  }
}

void TimesVector(const float* matrix, size_t num_rows, size_t n, const float* x,
                 float* y) {
  constexpr size_t kRows = 8;
  size_t r = 0;
  for (; r + kRows <= num_rows; r += kRows) {
    RowsTimesVector<kRows>(matrix + r * n, n, x, y + r);
  }
  for (; r < num_rows; ++r) RowsTimesVector<1>(matrix + r * n, n, x, y + r);
}

}  // namespace replicant::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replicant::kernels::cpu {

HWY_EXPORT(Find);
HWY_EXPORT(TimesVector);
HWY_EXPORT(FindRounding);
HWY_EXPORT(HalvesToFloats);
HWY_EXPORT(FloatsToHalves);

VectorFunction FindVectorFunction(graph::ScalarOp op) {
  return HWY_DYNAMIC_DISPATCH(Find)(op);
}

VectorFunction BF16RoundingFunction() {
  return HWY_DYNAMIC_DISPATCH(FindRounding)();
}

void ToFloats(const BFloat16* x, size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(HalvesToFloats)(x, n, out);
}

void ToBF16(const float* x, size_t n, BFloat16* out) {
  HWY_DYNAMIC_DISPATCH(FloatsToHalves)(x, n, out);
}

void MatrixTimesVector(const float* matrix, size_t num_rows, size_t n,
                       const float* x, float* y) {
  HWY_DYNAMIC_DISPATCH(TimesVector)(matrix, num_rows, n, x, y);
}

}  // namespace replicant::kernels::cpu
#endif  // HWY_ONCE
