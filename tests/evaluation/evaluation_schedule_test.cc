#include "evaluation/evaluation_schedule.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

namespace replicant::evaluation {
namespace {

TEST(EvaluationScheduleTest, CountsSecondsFromTheLastOne) {
  EvaluationSchedule schedule({.interval_s = 10.0});
  EXPECT_TRUE(schedule.IsDue(0.0, 0));
  schedule.Advance(3.0, 0);
  EXPECT_FALSE(schedule.IsDue(12.9, 1'000'000));
  EXPECT_TRUE(schedule.IsDue(13.0, 0));
}

TEST(EvaluationScheduleTest, CountsFramesInMultiplesOfTheInterval) {
  EvaluationSchedule schedule({.interval_s = 10.0, .interval_frames = 1000});
  EXPECT_TRUE(schedule.IsDue(0.0, 0));
  schedule.Advance(0.0, 40);
  EXPECT_FALSE(schedule.IsDue(1e6, 999));
  EXPECT_TRUE(schedule.IsDue(0.0, 1000));
  // a late one does not delay those after it
  schedule.Advance(0.0, 2999);
  EXPECT_FALSE(schedule.IsDue(0.0, 2999));
  EXPECT_TRUE(schedule.IsDue(0.0, 3000));
}

// Would catch a learner's fall-back after which an evaluation is missing.
TEST(EvaluationScheduleTest, WhatIsRemovedIsDueAgain) {
  EvaluationSchedule schedule({.interval_frames = 1000});
  for (const int64_t frames : {40, 1040, 2040}) schedule.Advance(0.0, frames);
  EXPECT_FALSE(schedule.IsDue(0.0, 2040));
  schedule.PlanAfter(1040);
  EXPECT_FALSE(schedule.IsDue(0.0, 1999));
  EXPECT_TRUE(schedule.IsDue(0.0, 2000));
  schedule.PlanAfter(std::nullopt);
  EXPECT_TRUE(schedule.IsDue(0.0, 0));
  // seconds go on
  EvaluationSchedule timed({.interval_s = 10.0});
  timed.Advance(3.0, 40);
  timed.PlanAfter(20);
  EXPECT_FALSE(timed.IsDue(12.9, 40));
  EXPECT_TRUE(timed.IsDue(13.0, 40));
}

}  // namespace
}  // namespace replicant::evaluation
