#include "replay/table/priority_weights.h"

#include <algorithm>

#include "base/instruction_sets.h"

// Highway includes this file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "replay/table/priority_weights.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after the former
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace replicant::replay::internal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
constexpr size_t kLanes = 8;
using Tag = HWY_CAPPED(double, kLanes);

// The weights of one vector of priorities. The logarithm and the exponential
// are off by 3 units in the last place, far less than a unit of the weights.
template <typename V>
V UnitsOf(V priority, V exponent) {
  const Tag d;
  const V power = hn::Exp(d, hn::Mul(exponent, hn::Log(d, priority)));
  const V weight =
      hn::IfThenElse(hn::Eq(exponent, hn::Set(d, 1.0)), priority, power);
  const V units = hn::Round(hn::Mul(weight, hn::Set(d, kUnitsPerWeight)));
  const V clamped =
      hn::Clamp(units, hn::Set(d, 1.0),
                hn::Set(d, static_cast<double>(SumTree::kMaxWeight)));
  return hn::IfThenElseZero(hn::Gt(priority, hn::Zero(d)), clamped);
}

void WeightsOfImpl(const double* HWY_RESTRICT priorities, size_t count,
                   double exponent, SumTree::Weight* HWY_RESTRICT weights) {
  const Tag d;
  const hn::RebindToSigned<Tag> integers;
  const auto power = hn::Set(d, exponent);
  const auto make = [&](const double* from, int64_t* to) HWY_ATTR {
    hn::StoreU(hn::ConvertTo(integers, UnitsOf(hn::LoadU(d, from), power)),
               integers, to);
  };
  auto* const to = reinterpret_cast<int64_t*>(weights);
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) make(priorities + i, to + i);
  if (i == count) return;
  double rest[kLanes] = {};
  int64_t weights_of_rest[kLanes];
  std::copy_n(priorities + i, count - i, rest);
  make(rest, weights_of_rest);
  std::copy_n(weights_of_rest, count - i, to + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace replicant::replay::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replicant::replay::internal {

HWY_EXPORT(WeightsOfImpl);

void WeightsOf(const double* priorities, size_t count, double exponent,
               SumTree::Weight* weights) {
  HWY_DYNAMIC_DISPATCH(WeightsOfImpl)(priorities, count, exponent, weights);
}

}  // namespace replicant::replay::internal
#endif  // HWY_ONCE
