#include "programs/sweep/median_rule.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace replicant::programs {
namespace {

using Evaluations = MedianRule::Evaluations;

// An evaluation every 100 steps.
Evaluations Returns(const std::vector<double>& returns) {
  Evaluations evaluations;
  for (const double mean : returns) {
    evaluation::EvaluationRecord record;
    record.step = 100 * static_cast<int64_t>(evaluations.size() + 1);
    record.mean = mean;
    evaluations.push_back(record);
  }
  return evaluations;
}

class MedianRuleTest : public ::testing::Test {
 protected:
  MedianRule rule_ = {
      .is_enabled = true, .min_steps = 200, .min_complete_runs = 3};
  // means up to step 200: 20, 30, 40
  std::vector<Evaluations> complete_ = {
      Returns({10, 30, 900}), Returns({40, 20, 900}), Returns({40, 40, 900})};
};

// Would catch a judgement by what the others reached later on.
TEST_F(MedianRuleTest, ComparesTheBestReturnWithMeansUpToTheSameStep) {
  EXPECT_EQ(rule_.MedianAbove(Returns({29, 5}), complete_), 30.0);
  EXPECT_EQ(rule_.MedianAbove(Returns({30, 5}), complete_), std::nullopt);
}

TEST_F(MedianRuleTest, AnEvenNumberOfRunsHasTheMiddleOfTwoAsMedian) {
  complete_.push_back(Returns({100}));
  EXPECT_EQ(rule_.MedianAbove(Returns({29, 34}), complete_), 35.0);
}

TEST_F(MedianRuleTest, JudgesNobodyTooEarly) {
  EXPECT_EQ(rule_.MedianAbove(Returns({1}), complete_), std::nullopt);
  EXPECT_EQ(rule_.MedianAbove({}, complete_), std::nullopt);
  complete_[0].clear();
  EXPECT_EQ(rule_.MedianAbove(Returns({1, 1}), complete_), std::nullopt);
}

TEST_F(MedianRuleTest, IsOffByDefault) {
  EXPECT_EQ(MedianRule().MedianAbove(Returns({1, 1}), complete_), std::nullopt);
}

}  // namespace
}  // namespace replicant::programs
