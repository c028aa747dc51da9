#include "env/tasks/spline_zoom.h"

#include <array>
#include <cmath>

#include "base/check.h"

namespace replicant::env {
namespace {

// Index into a signal of `size` values that is mirrored at its ends:
// ... 2 1 | 0 1 2 ... n-1 | n-2 ...
int Mirror(int i, int size) {
  const int period = 2 * size - 2;
  i = ((i % period) + period) % period;
  return i < size ? i : period - i;
}

// Replaces samples by the coefficients of the cubic B-spline through them: a
// recursive filter run forth and back, started as if the mirrored signal had
// gone on forever.
void ToCoefficients(std::vector<double>& line) {
  const double pole = std::sqrt(3.0) - 2.0;
  const int size = static_cast<int>(line.size());
  const auto at = [&line](int i) -> double& {
    return line[static_cast<size_t>(i)];
  };

  // the sum over all past samples is a geometric series of one period's
  const int period = 2 * size - 2;
  double first = 0.0;
  double power = 1.0;
  for (int i = 0; i < period; ++i) {
    first += power * at(Mirror(i, size));
    power *= pole;
  }
  at(0) = first / (1.0 - power);
  for (int i = 1; i < size; ++i) at(i) += pole * at(i - 1);

  at(size - 1) =
      pole / (pole * pole - 1.0) * (at(size - 1) + pole * at(size - 2));
  for (int i = size - 2; i >= 0; --i) at(i) = pole * (at(i + 1) - at(i));

  const double gain = (1.0 - pole) * (1.0 - 1.0 / pole);
  for (double& value : line) value *= gain;
}

// The four B-splines that are not zero at `t` in [0, 1) after a knot.
std::array<double, 4> Weights(double t) {
  const double s = 1.0 - t;
  return {s * s * s / 6.0, (4.0 - 6.0 * t * t + 3.0 * t * t * t) / 6.0,
          (4.0 - 6.0 * s * s + 3.0 * s * s * s) / 6.0, t * t * t / 6.0};
}

std::vector<double> ZoomLine(std::vector<double> line, int new_size) {
  ToCoefficients(line);
  const int size = static_cast<int>(line.size());
  std::vector<double> result(static_cast<size_t>(new_size));
  for (int i = 0; i < new_size; ++i) {
    const double x = static_cast<double>(i) * (size - 1) / (new_size - 1);
    const int knot = static_cast<int>(std::floor(x));
    const std::array<double, 4> weights = Weights(x - knot);
    for (int j = 0; j < 4; ++j) {
      const auto source = static_cast<size_t>(Mirror(knot - 1 + j, size));
      result[static_cast<size_t>(i)] +=
          weights[static_cast<size_t>(j)] * line[source];
    }
  }
  return result;
}

}  // namespace

std::vector<double> SplineZoom(std::span<const double> image, int size,
                               int new_size) {
  REPLICANT_CHECK(size >= 2 && new_size >= 2, "{} to {}", size, new_size);
  const auto n = static_cast<size_t>(size);
  const auto m = static_cast<size_t>(new_size);
  REPLICANT_CHECK_EQ(image.size(), n * n);

  // along the rows, then along the columns
  std::vector<double> wide;
  for (size_t row = 0; row < n; ++row) {
    const auto line = image.subspan(row * n, n);
    const auto zoomed = ZoomLine({line.begin(), line.end()}, new_size);
    wide.insert(wide.end(), zoomed.begin(), zoomed.end());
  }
  std::vector<double> result(m * m);
  std::vector<double> column(n);
  for (size_t x = 0; x < m; ++x) {
    for (size_t row = 0; row < n; ++row) column[row] = wide[row * m + x];
    const std::vector<double> zoomed = ZoomLine(column, new_size);
    for (size_t y = 0; y < m; ++y) result[y * m + x] = zoomed[y];
  }
  return result;
}

}  // namespace replicant::env
