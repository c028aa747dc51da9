#pragma once

namespace replicant::config {

// The values min <= v <= max. A Range<double> with an infinite bound admits
// that infinity; no range holds NaN.
template <typename T>
struct Range {
  T min;
  T max;

  bool Contains(T value) const { return value >= min && value <= max; }
};

}  // namespace replicant::config
