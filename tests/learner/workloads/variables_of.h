#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/runtime/variable_store.h"

// The variables after a training, and the distance between two trainings.
namespace replicant::learner {

// Floating variables by name.
using Variables = std::map<std::string, std::vector<double>>;

inline Variables ValuesOf(const runtime::VariableStore& store) {
  Variables values;
  for (const auto& [name, variable] : store.variables()) {
    const HostTensor value = store.Get(name);
    std::vector<double>& out = values[name];
    if (value.dtype() == DType::kF64) {
      out.assign(value.Span<double>().begin(), value.Span<double>().end());
    } else if (value.dtype() == DType::kF32) {
      out.assign(value.Span<float>().begin(), value.Span<float>().end());
    } else {
      values.erase(name);
    }
  }
  return values;
}

inline double Distance(const std::vector<double>& a,
                       const std::vector<double>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

// Whether two trainings from `first` have come to the same. f64: no tensor is
// further off than 1e-9. f32: all parameters by no more than a thousandth of
// the way that they have gone.
inline void CheckSameTraining(const Variables& first, const Variables& one,
                              const Variables& many, DType dtype) {
  ASSERT_EQ(one.size(), many.size());
  double difference = 0.0;
  double moved = 0.0;
  for (const auto& [name, value] : one) {
    const double off = Distance(value, many.at(name));
    if (dtype == DType::kF64) {
      EXPECT_LE(off, 1e-9) << name;
    }
    if (name.find("optimizer") != std::string::npos) continue;
    difference += off * off;
    const double way = Distance(value, first.at(name));
    moved += way * way;
  }
  EXPECT_GT(moved, 0.0);
  EXPECT_LE(std::sqrt(difference), 1e-3 * std::sqrt(moved));
}

}  // namespace replicant::learner
