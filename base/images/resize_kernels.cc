#include "base/images/resize_kernels.h"

#include <cstddef>

#include "base/instruction_sets.h"

// Highway includes this file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/images/resize_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace replicant::data::internal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// One vector of sums, or the single sum of a vector of one lane.
template <class D>
void SumRowsAt(D d, const uint8_t* HWY_RESTRICT rows, int64_t stride,
               const float* HWY_RESTRICT weights, int64_t num_taps,
               float* HWY_RESTRICT sums) {
  const hn::Rebind<uint8_t, D> bytes;
  const hn::Rebind<int32_t, D> whole;
  auto sum = hn::Zero(d);
  for (int64_t j = 0; j < num_taps; ++j) {
    const auto value = hn::ConvertTo(
        d, hn::PromoteTo(whole, hn::LoadU(bytes, rows + j * stride)));
    sum = hn::Add(sum, hn::Mul(hn::Set(d, weights[j]), value));
  }
  hn::StoreU(sum, d, sums);
}

void SumRowsImpl(const uint8_t* rows, int64_t stride, const float* weights,
                 int64_t num_taps, int64_t length, float* sums) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t k = 0;
  for (; k + lanes <= length; k += lanes) {
    SumRowsAt(d, rows + k, stride, weights, num_taps, sums + k);
  }
  for (; k < length; ++k) {
    SumRowsAt(hn::CappedTag<float, 1>(), rows + k, stride, weights, num_taps,
              sums + k);
  }
}

void SumPixelsImpl(const float* HWY_RESTRICT row, const RowFilter& filter,
                   int64_t num_pixels, uint8_t* HWY_RESTRICT rgb) {
  // the three colours and a lane that the next pixel overwrites; where there
  // are no vectors, one colour
  const hn::CappedTag<float, 4> d;
  const hn::Rebind<uint8_t, decltype(d)> bytes;
  const hn::Rebind<int32_t, decltype(d)> whole;
  const auto half = hn::Set(d, 0.5F);
  for (int64_t x = 0; x < num_pixels; ++x) {
    const float* pixels = row + (filter.firsts[x] - filter.origin) * 3;
    for (size_t c = 0; c < 3; c += hn::Lanes(d)) {
      const float* source = pixels + c;
      auto sum = hn::Zero(d);
      for (int64_t j = filter.ends[x]; j < filter.ends[x + 1]; ++j) {
        sum = hn::Add(
            sum, hn::Mul(hn::LoadU(d, source), hn::Set(d, filter.weights[j])));
        source += 3;
      }
      const auto rounded = hn::ConvertTo(whole, hn::Add(sum, half));
      hn::StoreU(hn::DemoteTo(bytes, rounded), bytes, rgb + x * 3 + c);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace replicant::data::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replicant::data::internal {

HWY_EXPORT(SumRowsImpl);
HWY_EXPORT(SumPixelsImpl);

void SumRows(const uint8_t* rows, int64_t stride, const float* weights,
             int64_t num_taps, int64_t length, float* sums) {
  HWY_DYNAMIC_DISPATCH(SumRowsImpl)
  (rows, stride, weights, num_taps, length, sums);
}

void SumPixels(const float* row, const RowFilter& filter, int64_t num_pixels,
               uint8_t* rgb) {
  HWY_DYNAMIC_DISPATCH(SumPixelsImpl)(row, filter, num_pixels, rgb);
}

}  // namespace replicant::data::internal
#endif  // HWY_ONCE
