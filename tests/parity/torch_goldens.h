#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/tensor/safetensors.h"
#include "tests/parity/golden_error.h"
#include "tests/support/source_folder.h"

// Compares updates of a workload with PyTorch's in tests/golden/torch. For
// tests with FINDS_FILES.
namespace replicant::testing {

inline std::filesystem::path TorchGolden(const std::string& file) {
  return SourceFolder(REPLICANT_SOURCE_DIR) / "tests/golden/torch" / file;
}

// Allowed difference of each of D4PG's groups, relative to its largest element.
//
// float64: gradients and losses are sums of at most a few hundred products,
// 1e3 * 2^-53; the clip factor of the gradients' global norm is f32, which Adam
// all but divides out, but for its epsilon: 1e-7 in variables that are near it.
// f32: the same sums, with the rounding of the inputs; Adam divides by
// sqrt(v), which lets a gradient that is near zero, and so mostly rounding,
// move its parameter by up to a learning rate (1e-3) per step.
inline double D4pgTolerance(const std::string& group, DType dtype) {
  const bool is_f64 = dtype == DType::kF64;
  if (group == "gradients") return 1e3 * (is_f64 ? 0x1p-53 : 0x1p-24);
  if (group == "variables") return is_f64 ? 1e-7 : 1e-3;
  return is_f64 ? 1e-10 : 1e-5;
}

// The same for ResNet and SN-GAN.
//
// Gradients: the networks are narrow and their norms see few elements, so
// that each of up to 53 norms makes rounding errors a little larger; PyTorch
// in f32 differs from itself in f64 by up to 2e-5.
// After ten steps, f32: rounding errors have gone through ten updates; and
// Adam makes the rounding error of a gradient that is zero (a bias before a
// norm) a step of a learning rate, which nothing but the running mean after
// it notices. f64: how far running statistics move is f32 in our graphs.
inline double ModelTolerance(const std::string& group, DType dtype) {
  const bool is_f64 = dtype == DType::kF64;
  if (group == "gradients" || group == "losses" || group == "steps") {
    return is_f64 ? 1e-11 : 1e-4;
  }
  return is_f64 ? 3e-7 : 3e-2;
}

// Holds what a run gave, under "GROUP/...", against the tensors of the golden's
// group.
inline void ExpectNearGolden(const std::map<std::string, HostTensor>& result,
                             const std::string& group,
                             const SafetensorsReader& expected,
                             const std::string& golden_group, double tolerance,
                             ErrorTable& table) {
  std::map<std::string, HostTensor> wanted;
  double largest = 0.0;
  for (const SafetensorsInfo& info : expected.tensors()) {
    if (!info.name.starts_with(golden_group + "/")) continue;
    HostTensor tensor = expected.Read(info.name);
    largest = std::max(largest, LargestElement(tensor.view()));
    wanted.emplace(info.name.substr(golden_group.size()), std::move(tensor));
  }
  ASSERT_FALSE(wanted.empty()) << golden_group;
  for (const auto& [name, tensor] : wanted) {
    ASSERT_TRUE(result.contains(group + name)) << group << name;
    double error = RelativeError(result.at(group + name).view(), tensor.view());
    // a gradient that is zero but for rounding, such as of a bias before a
    // norm, is held against the others
    const double own = LargestElement(tensor.view());
    if (own < 1e-9 * largest) error *= own / largest;
    EXPECT_LE(error, tolerance) << golden_group << name;
    table.Add(golden_group, "largest error", error);
  }
}

inline constexpr int64_t kAutocastSteps = 20;

// The root mean square of the difference over all steps.
inline double RootMeanSquare(const std::vector<double>& a,
                             const std::vector<double>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// Holds the losses of kAutocastSteps updates in bf16 against those of PyTorch's
// autocast, and prints how far they are apart.
inline void ExpectLossNearAutocast(const std::string& golden,
                                   const std::string& loss,
                                   const std::vector<double>& ours,
                                   const std::string& backend) {
  const SafetensorsReader expected(TorchGolden("bf16_losses.safetensors"));
  const auto read = [&](const char* kind) {
    return ToDoubles(
        expected.Read(fmt::format("{}/{}/{}", golden, kind, loss)).view());
  };
  const std::vector<double> autocast = read("autocast");
  const std::vector<double> exact = read("f64");
  // two that round in bf16, at places that are not all the same, are apart by
  // sqrt(2) of what one of them is from the exact one; the largest of the
  // cases is some twice the mean. 2^-8, a step of bf16, for a loss that
  // rounding happened not to touch.
  const double scale =
      RootMeanSquare(exact, std::vector<double>(kAutocastSteps, 0.0));
  const double error = RootMeanSquare(autocast, exact);
  const double tolerance =
      2.0 * std::sqrt(2.0) * std::max(error, 0x1p-8 * scale);
  EXPECT_LE(RootMeanSquare(ours, autocast), tolerance) << golden << " " << loss;
  // nor may it be f32 that was computed: bf16 leaves its mark
  EXPECT_GE(RootMeanSquare(ours, exact), 1e-6 * scale) << golden << " " << loss;
  fmt::print(
      "{:20} {:10} {:20} to autocast {:.1e}, autocast to f64 {:.1e}, "
      "ours to f64 {:.1e} of {:.1e}\n",
      golden, backend, loss, RootMeanSquare(ours, autocast), error,
      RootMeanSquare(ours, exact), scale);
}

}  // namespace replicant::testing
