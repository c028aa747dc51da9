#include "base/metrics/rate_meter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

namespace replicant::metrics {
namespace {

using std::chrono::seconds;

Clock::TimePoint At(int s) { return Clock::TimePoint(seconds(s)); }

TEST(RateMeterTest, OneSampleHasNoRate) {
  RateMeter meter(seconds(10));
  EXPECT_TRUE(std::isnan(meter.rate()));
  meter.Add(At(1), 5);
  EXPECT_TRUE(std::isnan(meter.rate()));
  meter.Add(At(1), 6);
  EXPECT_TRUE(std::isnan(meter.rate())) << "no time has passed";
}

// Would catch a rate over the whole run, which hides a stall.
TEST(RateMeterTest, OldSamplesAreForgotten) {
  RateMeter meter(seconds(10));
  for (int s = 0; s <= 100; ++s) meter.Add(At(s), 2 * s);
  EXPECT_EQ(meter.rate(), 2.0);
  for (int s = 101; s <= 105; ++s) meter.Add(At(s), 200);
  EXPECT_EQ(meter.rate(), 1.0);
  for (int s = 106; s <= 110; ++s) meter.Add(At(s), 200);
  EXPECT_EQ(meter.rate(), 0.0);
}

TEST(RateMeterTest, SamplesRarerThanTheWindowStillGiveARate) {
  RateMeter meter(seconds(10));
  meter.Add(At(0), 0);
  meter.Add(At(30), 60);
  EXPECT_EQ(meter.rate(), 2.0);
  meter.Add(At(60), 150);
  EXPECT_EQ(meter.rate(), 3.0);
}

// Would catch a huge negative rate after a process was started again.
TEST(RateMeterTest, ATotalThatShrinksBeginsAgain) {
  RateMeter meter(seconds(10));
  meter.Add(At(0), 0);
  meter.Add(At(1), 1000);
  meter.Add(At(2), 0);
  EXPECT_TRUE(std::isnan(meter.rate()));
  meter.Add(At(3), 7);
  EXPECT_EQ(meter.rate(), 7.0);
}

TEST(RateMeterDeathTest, TimeThatGoesBackAborts) {
  RateMeter meter(seconds(10));
  meter.Add(At(2), 0);
  EXPECT_DEATH(meter.Add(At(1), 0), "time went back");
  EXPECT_DEATH(RateMeter(seconds(0)), "window of 0 ns");
}

}  // namespace
}  // namespace replicant::metrics
