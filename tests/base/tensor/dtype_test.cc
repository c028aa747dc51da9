#include "base/tensor/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace replicant {
namespace {

// Would catch a table whose rows do not follow the order of the enum.
TEST(DTypeTest, NamesAndSizesFitTheTypes) {
  EXPECT_EQ(DTypeName(DType::kF32), "f32");
  EXPECT_EQ(DTypeName(DType::kF64), "f64");
  EXPECT_EQ(DTypeName(DType::kBF16), "bf16");
  EXPECT_EQ(DTypeName(DType::kU8), "u8");
  EXPECT_EQ(DTypeName(DType::kI32), "i32");
  EXPECT_EQ(DTypeName(DType::kI64), "i64");
  EXPECT_EQ(DTypeName(DType::kBool), "bool");
  EXPECT_EQ(DTypeSize(kDTypeOf<float>), sizeof(float));
  EXPECT_EQ(DTypeSize(kDTypeOf<double>), sizeof(double));
  EXPECT_EQ(DTypeSize(kDTypeOf<BFloat16>), sizeof(BFloat16));
  EXPECT_EQ(DTypeSize(kDTypeOf<uint8_t>), sizeof(uint8_t));
  EXPECT_EQ(DTypeSize(kDTypeOf<int32_t>), sizeof(int32_t));
  EXPECT_EQ(DTypeSize(kDTypeOf<int64_t>), sizeof(int64_t));
  EXPECT_EQ(DTypeSize(kDTypeOf<bool>), sizeof(bool));
}

TEST(DTypeTest, ParsesEveryNameAndNothingElse) {
  for (const DType dtype : kAllDTypes) {
    EXPECT_EQ(ParseDType(DTypeName(dtype)), dtype);
  }
  EXPECT_EQ(ParseDType("F32"), std::nullopt);
  EXPECT_EQ(ParseDType("f3"), std::nullopt);
  EXPECT_EQ(ParseDType(""), std::nullopt);
}

float ThroughBFloat16(float value) {
  return static_cast<float>(BFloat16(value));
}

// Near 1 neighbours are 2^-7 apart. Would catch truncation, and ties away from
// zero.
TEST(BFloat16Test, RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(ThroughBFloat16(1.0F), 1.0F);
  EXPECT_EQ(ThroughBFloat16(-2.5F), -2.5F);
  // just below, at and just above the middle of 1 and its neighbour
  EXPECT_EQ(ThroughBFloat16(1.0F + 0x1p-8F - 0x1p-20F), 1.0F);
  EXPECT_EQ(ThroughBFloat16(1.0F + 0x1p-8F), 1.0F);
  EXPECT_EQ(ThroughBFloat16(1.0F + 0x1p-8F + 0x1p-20F), 1.0F + 0x1p-7F);
  // the middle of an odd and an even neighbour goes up
  EXPECT_EQ(ThroughBFloat16(1.0F + 3 * 0x1p-8F), 1.0F + 2 * 0x1p-7F);
}

// Would catch a carry that runs into the sign, or a lost subnormal.
TEST(BFloat16Test, KeepsZerosInfinitiesAndSubnormals) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ThroughBFloat16(kInfinity), kInfinity);
  EXPECT_EQ(ThroughBFloat16(-kInfinity), -kInfinity);
  EXPECT_EQ(ThroughBFloat16(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(BFloat16(0.0F).bits, 0x0000);
  EXPECT_EQ(BFloat16(-0.0F).bits, 0x8000);
  EXPECT_EQ(ThroughBFloat16(0x1p-133F), 0x1p-133F);
}

// Would catch a NaN whose payload lies in the dropped bits turning infinite.
TEST(BFloat16Test, KeepsNanWithItsSign) {
  for (const uint32_t word : {0x7F800001U, 0x7FC00000U, 0x7FFFFFFFU}) {
    const BFloat16 positive(std::bit_cast<float>(word));
    const BFloat16 negative(std::bit_cast<float>(word | 0x80000000U));
    EXPECT_TRUE(std::isnan(static_cast<float>(positive)));
    EXPECT_TRUE(std::isnan(static_cast<float>(negative)));
    EXPECT_EQ(positive.bits >> 15, 0);
    EXPECT_EQ(negative.bits >> 15, 1);
  }
}

// All 65536 values: to float and back changes nothing but signalling NaNs,
// which turn quiet.
TEST(BFloat16Test, EveryValueSurvivesTheWayThroughFloat) {
  for (uint32_t bits = 0; bits <= 0xFFFFU; ++bits) {
    const auto value = BFloat16::FromBits(static_cast<uint16_t>(bits));
    const auto as_float = static_cast<float>(value);
    const uint32_t expected = std::isnan(as_float) ? bits | 0x0040U : bits;
    ASSERT_EQ(BFloat16(as_float).bits, expected);
  }
}

}  // namespace
}  // namespace replicant
