#include "base/check.h"

#include <gtest/gtest.h>

namespace replicant {
namespace {

TEST(CheckTest, TrueConditionGoesOnAndEvaluatesItsOperandsOnce) {
  int calls = 0;
  const auto next = [&calls] { return ++calls; };
  REPLICANT_CHECK_EQ(next(), 1);
  REPLICANT_CHECK(next() == 2, "second call");
  EXPECT_EQ(calls, 2);
}

TEST(CheckDeathTest, PrintsPlaceExpressionAndDetail) {
  const int slot = 7;
  EXPECT_DEATH(REPLICANT_CHECK(slot < 4, "slot {} of {}", slot, 4),
               "check_test.cc:[0-9]+: check failed: slot < 4: slot 7 of 4");
}

TEST(CheckDeathTest, ComparisonPrintsBothValues) {
  const int items = 3;
  EXPECT_DEATH(REPLICANT_CHECK_GE(items, 5), "items >= 5: 3 vs 5");
}

}  // namespace
}  // namespace replicant
