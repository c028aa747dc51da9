#include "base/metrics/format.h"

#include <gtest/gtest.h>

#include <cmath>

namespace replicant::metrics {
namespace {

TEST(FormatTest, QuantitiesAreShort) {
  EXPECT_EQ(FormatQuantity(0), "0");
  EXPECT_EQ(FormatQuantity(-0.0), "0");
  EXPECT_EQ(FormatQuantity(9999), "9999");
  EXPECT_EQ(FormatQuantity(-12), "-12");
  EXPECT_EQ(FormatQuantity(0.123456), "0.1235");
  EXPECT_EQ(FormatQuantity(1234.56), "1235");
  EXPECT_EQ(FormatQuantity(1.2e-5), "1.2e-05");
  EXPECT_EQ(FormatQuantity(10000), "10k");
  EXPECT_EQ(FormatQuantity(-12345), "-12.3k");
  EXPECT_EQ(FormatQuantity(4.56e6), "4.56M");
  EXPECT_EQ(FormatQuantity(7e15), "7e+03T");
  EXPECT_EQ(FormatQuantity(NAN), "nan");
  EXPECT_EQ(FormatQuantity(-INFINITY), "-inf");
}

// Would catch "1e+03" and "1e+03k", which rounding makes just below a bound.
TEST(FormatTest, RoundingNeverAddsADigit) {
  EXPECT_EQ(FormatQuantity(9999.4), "9999");
  EXPECT_EQ(FormatQuantity(9999.6), "10k");
  EXPECT_EQ(FormatQuantity(999499), "999k");
  EXPECT_EQ(FormatQuantity(999600), "1M");
}

TEST(FormatTest, DurationsShowTheirTwoLargestUnits) {
  EXPECT_EQ(FormatDuration(0), "0s");
  EXPECT_EQ(FormatDuration(59.4), "59s");
  EXPECT_EQ(FormatDuration(59.6), "1m00s");
  EXPECT_EQ(FormatDuration(200), "3m20s");
  EXPECT_EQ(FormatDuration(5 * 3600 + 7 * 60), "5h07m");
  EXPECT_EQ(FormatDuration(3 * 86400 + 4 * 3600), "3d04h");
  EXPECT_EQ(FormatDuration(-1), "?");
  EXPECT_EQ(FormatDuration(NAN), "?");
  EXPECT_EQ(FormatDuration(1e300), "?");
}

}  // namespace
}  // namespace replicant::metrics
