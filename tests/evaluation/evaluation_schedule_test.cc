#include "evaluation/evaluation_schedule.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace replicant::evaluation
