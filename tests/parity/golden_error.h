#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "base/tensor/host_tensor.h"
#include "tests/support/tensor_values.h"

namespace replicant::testing {

// The largest absolute value of an element.
inline double LargestElement(TensorView tensor) {
  double largest = 0.0;
  for (const double x : ToDoubles(tensor)) {
    largest = std::max(largest, std::fabs(x));
  }
  return largest;
}

// Largest difference of two tensors of one shape, divided by the largest
// element of `expected`; infinite for different shapes or NaN.
inline double RelativeError(TensorView actual, TensorView expected) {
  if (actual.shape() != expected.shape()) return INFINITY;
  const std::vector<double> a = ToDoubles(actual);
  const std::vector<double> b = ToDoubles(expected);
  double largest = 0.0, difference = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return INFINITY;
    largest = std::max(largest, std::fabs(b[i]));
    difference = std::max(difference, std::fabs(a[i] - b[i]));
  }
  return largest > 0.0 ? difference / largest : difference;
}

// The parity table: the largest error by row and column, printed by tests.
class ErrorTable {
 public:
  void Add(const std::string& row, const std::string& column, double error) {
    double& cell = cells_[row][column];
    cell = std::max(cell, error);
  }

  void Print(const std::string& title) const {
    for (const auto& [row, columns] : cells_) {
      fmt::print("{:28} {:14}", title, row);
      for (const auto& [column, error] : columns) {
        fmt::print("  {} {:.1e}", column, error);
      }
      fmt::print("\n");
    }
  }

 private:
  std::map<std::string, std::map<std::string, double>> cells_;
};

}  // namespace replicant::testing
