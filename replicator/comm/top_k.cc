#include "replicator/comm/top_k.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "base/check.h"

namespace replicant::comm {
namespace {

// Bits of a magnitude below those that the histogram counts by: exponent and
// four bits of the fraction stay.
constexpr uint32_t kShift = 19;
constexpr size_t kNumBins = size_t{1} << (31 - kShift);

// Orders like the magnitude; above infinity for NaN.
uint32_t MagnitudeOf(float x) {
  return std::bit_cast<uint32_t>(x) & 0x7fffffff;
}

}  // namespace

size_t TopKCount(size_t count, double share) {
  const auto wanted =
      static_cast<size_t>(std::ceil(share * static_cast<double>(count)));
  return std::min(count, std::max<size_t>(wanted, 1));
}

TopKResidual::Threshold TopKResidual::FindThreshold(size_t k) {
  histogram_.assign(kNumBins, 0);
  for (const float x : residual_) ++histogram_[MagnitudeOf(x) >> kShift];
  size_t bin = kNumBins - 1;
  size_t num_larger = 0;
  while (num_larger + histogram_[bin] < k) num_larger += histogram_[bin--];
  candidates_.clear();
  for (const float x : residual_) {
    const uint32_t magnitude = MagnitudeOf(x);
    if (magnitude >> kShift == bin) candidates_.push_back(magnitude);
  }
  const auto at =
      candidates_.begin() + static_cast<std::ptrdiff_t>(k - num_larger - 1);
  std::ranges::nth_element(candidates_, at, std::greater<>());
  const uint32_t magnitude = *at;
  num_larger += static_cast<size_t>(std::ranges::count_if(
      candidates_.begin(), at, [&](uint32_t x) { return x > magnitude; }));
  return {.magnitude = magnitude, .num_larger = num_larger};
}

void TopKResidual::AddAndTake(std::span<const float> gradient,
                              std::span<int32_t> indices,
                              std::span<float> values) {
  const size_t k = indices.size();
  REPLICANT_CHECK(gradient.size() == residual_.size() && values.size() == k &&
                      k <= residual_.size(),
                  "{} of {} elements, {} values, {} residuals", k,
                  gradient.size(), values.size(), residual_.size());
  for (size_t i = 0; i < residual_.size(); ++i) residual_[i] += gradient[i];
  if (k == 0) return;
  const auto [threshold, num_larger] = FindThreshold(k);
  size_t num_equal = k - num_larger;
  size_t next = 0;
  for (size_t i = 0; next < k; ++i) {
    const uint32_t magnitude = MagnitudeOf(residual_[i]);
    if (magnitude < threshold) continue;
    if (magnitude == threshold) {
      if (num_equal == 0) continue;
      --num_equal;
    }
    indices[next] = static_cast<int32_t>(i);
    values[next] = residual_[i];
    residual_[i] = 0.0F;
    ++next;
  }
}

void AddSparse(std::span<const int32_t> indices, std::span<const float> values,
               std::span<float> out) {
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto at = static_cast<size_t>(indices[i]);
    REPLICANT_CHECK(at < out.size(), "element {} of {}", indices[i],
                    out.size());
    out[at] += values[i];
  }
}

}  // namespace replicant::comm
