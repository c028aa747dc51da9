// The plans of the three workloads' steps for a device, without a device.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "programs/plan/plan_program.h"
#include "programs/plan/plan_text.h"
#include "tests/programs/plans_of_file.h"
#include "tests/support/message_of.h"

namespace replicant::programs {
namespace {

using ::testing::HasSubstr;

// "library calls, own kernels, generated kernels, copies" of each part.
std::string CountsOf(const std::string& file, const std::string& precision) {
  std::string text;
  for (const replicator::StepPlan& plan : PlansOfFile(file, precision)) {
    const PlanTotals totals = TotalsOf(plan.report);
    text += fmt::format("{} {} {} {} {}; ", plan.name, totals.num_library_calls,
                        totals.num_own_kernels, totals.num_generated,
                        totals.num_copies);
  }
  return text;
}

struct Golden {
  const char* file;
  const char* precision;
  const char* counts;
};

// A pass or a kernel that gets better lowers a count: change it here. One that
// grows is a step that got slower.
TEST(PlanTest, StepsHaveTheirLaunches) {
  for (const Golden& golden : {
           Golden{"cartpole_swingup_pixels.yaml", "f32", "step 44 97 56 7; "},
           Golden{"cartpole_swingup_pixels.yaml", "tf32", "step 44 97 52 7; "},
           Golden{"cartpole_swingup_pixels.yaml", "bf16", "step 44 118 81 7; "},
           Golden{"resnet50_imagenet.yaml", "bf16", "step 161 585 119 1; "},
           Golden{"sngan32_synthetic.yaml", "bf16",
                  "discriminator 78 206 197 73; generator 78 235 151 49; "},
       }) {
    EXPECT_EQ(CountsOf(golden.file, golden.precision), golden.counts)
        << golden.file << ", " << golden.precision;
  }
}

TEST(PlanTest, ThePageSaysWhatAStepTakes) {
  const auto plans = PlansOfFile("cartpole_swingup_pixels.yaml", "bf16");
  ASSERT_EQ(plans.size(), 1U);
  const runtime::PlanReport& report = plans[0].report;
  const std::string text = PlanText(plans[0], /*lists_all=*/false);
  for (const char* part :
       {"launches  250: 44 library calls, 118 own kernels, 81 generated",
        "generated kernels, 7 copies",
        "MB at least (inputs, outputs, variables)", "resident inputs 2004.7 MB",
        "ms at least on an H100", "largest tensors\n", "slowest kernels\n",
        "convolution 64x64x64x9"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  // kernels move more than the step must
  EXPECT_GT(TotalsOf(report).bytes, static_cast<double>(report.least_bytes));
  EXPECT_GE(report.largest_tensors.front().size_bytes,
            report.largest_tensors.back().size_bytes);
  // every kernel is listed on demand
  EXPECT_THAT(PlanText(plans[0], /*lists_all=*/true),
              HasSubstr("AdamUpdate 'AdamUpdate': adam_update"));
}

// An H200 differs in its memory.
TEST(PlanTest, AFasterMemoryShortensWhatMovesBytes) {
  const auto plans = PlansOfFile("cartpole_swingup_pixels.yaml", "bf16");
  const double h100 = TotalsOf(plans[0].report).seconds;
  const double h200 = TotalsOf(plans[0].report, kH200).seconds;
  EXPECT_LT(h200, h100);
  EXPECT_GE(h200, 0.999 * h100 * 3.35 / 4.8);
  EXPECT_THAT(PlanText(plans[0], /*lists_all=*/false, kH200),
              HasSubstr("ms at least on an H200"));
}

// Frames on the device cost their gather: no more than a twentieth of the step
// whose pixels are there already.
TEST(PlanTest, FramesOnTheDeviceCostLittle) {
  const auto seconds = [](const std::string& max_bytes) {
    const auto plans = PlansOfFile(
        "walker_walk_pixels.yaml", "bf16", {},
        {"task.pixels={enabled: true, height: 84, width: 84, frame_stack: 3}",
         "agent.networks.encoder={kind: drq}", "agent.random_shift=0",
         "learner.batch_size=256",
         "learner.frame_store.max_bytes=" + max_bytes});
    return TotalsOf(plans[0].report).seconds;
  };
  const double alone = seconds("0");
  const double resident = seconds("2e9");
  EXPECT_GT(resident, alone);
  EXPECT_LT(resident, 1.05 * alone);
}

// f32 is multiplied by slower units than bf16.
TEST(PlanTest, TimesDependOnThePrecision) {
  const auto seconds = [](const char* precision) {
    const auto plans = PlansOfFile("resnet18_synthetic.yaml", precision);
    return TotalsOf(plans[0].report).seconds;
  };
  EXPECT_GT(seconds("f32"), seconds("tf32"));
  EXPECT_GT(seconds("tf32"), seconds("bf16"));
}

}  // namespace
}  // namespace replicant::programs
