#include "engine/kernels/cpu/vector_functions.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace replicant::kernels::cpu {
namespace {

// Every value of bf16, its neighbours in f32, the middles to the next one and
// theirs: whatever rounds up, down or to even. An odd number of elements.
std::vector<float> Values() {
  std::vector<float> values = {0.0F};
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower :
         {0x0U, 0x1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  return values;
}

TEST(VectorFunctionsTest, ToBF16RoundsAsBFloat16) {
  const std::vector<float> values = Values();
  std::vector<BFloat16> halves(values.size());
  ToBF16(values.data(), values.size(), halves.data());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(halves[i].bits, BFloat16(values[i]).bits) << values[i];
  }
}

TEST(VectorFunctionsTest, RoundingInPlaceGivesWhatToBF16Stores) {
  std::vector<float> values = Values();
  std::vector<BFloat16> halves(values.size());
  ToBF16(values.data(), values.size(), halves.data());
  BF16RoundingFunction()(values.data(), nullptr, nullptr, 0.0F, 0.0F,
                         values.data(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]),
              uint32_t{halves[i].bits} << 16);
  }
}

// From 2^-149 to the largest float; far from 0 a small error of the reduction
// to one period is a wrong result.
TEST(VectorFunctionsTest, SinAndCosAreAccurateForAllFloats) {
  const std::vector<float> values = Values();
  std::vector<float> results(values.size());
  const auto check = [&](graph::ScalarOp op, double (*exact)(double)) {
    FindVectorFunction(op)(values.data(), nullptr, nullptr, 0.0F, 0.0F,
                           results.data(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i])) {
        ASSERT_NEAR(results[i], exact(values[i]), 4 * 0x1p-23) << values[i];
      } else {
        ASSERT_TRUE(std::isnan(results[i])) << values[i];
      }
    }
  };
  check(graph::ScalarOp::kSin, &std::sin);
  check(graph::ScalarOp::kCos, &std::cos);
}

TEST(VectorFunctionsTest, ToFloatsIsExact) {
  std::vector<BFloat16> halves;
  for (uint32_t bits = 0; bits < 0x10000 - 1; ++bits) {
    halves.push_back(BFloat16::FromBits(static_cast<uint16_t>(bits)));
  }
  std::vector<float> values(halves.size());
  ToFloats(halves.data(), halves.size(), values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]),
              uint32_t{halves[i].bits} << 16);
  }
}

}  // namespace
}  // namespace replicant::kernels::cpu
