#include "base/metrics/format.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

namespace replicant::metrics {

std::string FormatQuantity(double value) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  const double size = std::abs(value);
  if (size < 10000.0 && value == std::trunc(value)) {
    // + 0.0 turns -0 into 0
    return fmt::format("{:.0f}", value + 0.0);
  }
  if (size < 1e-3) return fmt::format("{:.1e}", value);
  // at the bounds, rounding would give one digit more
  if (size < 9999.5) return fmt::format("{:.4g}", value);

  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T"};
  size_t prefix = 0;
  double scaled = value;
  while (std::abs(scaled) >= 999.5 && prefix + 1 < std::size(kPrefixes)) {
    scaled /= 1000.0;
    ++prefix;
  }
  return fmt::format("{:.3g}{}", scaled, kPrefixes[prefix]);
}

std::string FormatDuration(double duration_s) {
  constexpr double kMax = 999.0 * 86400.0;
  if (!(duration_s >= 0.0 && duration_s <= kMax)) return "?";
  const auto s = static_cast<int64_t>(std::llround(duration_s));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

}  // namespace replicant::metrics
