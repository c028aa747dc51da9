// cuDNN's plans of the convolutions of the three workloads, for an H100 that is
// described and not there, as a tuner gets them.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/kernels/cuda/convolution_library.h"
#include "tests/support/h100.h"

namespace replicant::kernels::cuda {
namespace {

// A line of the golden file up to its colon, such as "forward x 16x8x8x32 w
// 32x3x3x32 stride 1 padding 1 bf16 bias relu".
ConvolutionProblem ProblemOf(const std::string& line) {
  ConvolutionProblem p;
  std::array<char, 32> kind{};
  std::array<char, 8> dtype{};
  int64_t wc = 0;
  EXPECT_EQ(std::sscanf(line.c_str(),
                        "%31s x %ldx%ldx%ldx%ld w %ldx%ldx%ldx%ld stride %ld "
                        "padding %ld %7[^ :]",
                        kind.data(), &p.b, &p.h, &p.w, &p.c, &p.o, &p.kh, &p.kw,
                        &wc, &p.stride, &p.padding, dtype.data()),
            12)
      << line;
  const std::string name = kind.data();
  p.kind = name == "forward"          ? ConvolutionKind::kForward
           : name == "input_gradient" ? ConvolutionKind::kInputGradient
                                      : ConvolutionKind::kWeightGradient;
  const std::string type = dtype.data();
  p.dtype = type == "bf16" ? DType::kBF16 : DType::kF32;
  p.allows_tf32 = type == "tf32";
  const std::string problem = line.substr(0, line.find(':'));
  p.has_bias = problem.find(" bias") != std::string::npos;
  p.has_relu = problem.find(" relu") != std::string::npos;
  p.yh = (p.h + 2 * p.padding - p.kh) / p.stride + 1;
  p.yw = (p.w + 2 * p.padding - p.kw) / p.stride + 1;
  return p;
}

std::vector<std::string> GoldenLines() {
  std::ifstream file(std::filesystem::path(REPLICANT_SOURCE_DIR) /
                     "tests/golden/cudnn/h100_plans.txt");
  std::vector<std::string> lines;
  std::string line;
  std::getline(file, line);  // the library
  while (std::getline(file, line)) lines.push_back(line);
  return lines;
}

std::vector<std::string> NamesOf(
    const std::vector<std::unique_ptr<ConvolutionPlan>>& plans) {
  std::vector<std::string> names;
  names.reserve(plans.size());
  for (const auto& plan : plans) names.push_back(plan->name());
  return names;
}

class CudnnCandidatesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      cudnn_->version();
    } catch (const DeviceError& e) {
      GTEST_SKIP() << e.what();
    }
  }

  const std::unique_ptr<ConvolutionLibrary> cudnn_ = MakeCudnn(testing::kH100);
};

constexpr int kMax = 16;

// Catches settings that a name leaves out: two plans would be one in the cache.
TEST_F(CudnnCandidatesTest, AllHaveNamesOfTheirOwnThatStay) {
  // as another process has it
  const auto again = MakeCudnn(testing::kH100);
  const std::vector<std::string> lines = GoldenLines();
  ASSERT_EQ(lines.size(), 128U);
  size_t num_candidates = 0;
  for (const std::string& line : lines) {
    SCOPED_TRACE(line);
    const ConvolutionProblem problem = ProblemOf(line);
    const auto plans = cudnn_->Candidates(problem, kMax);
    ASSERT_FALSE(plans.empty());
    ASSERT_LE(plans.size(), static_cast<size_t>(kMax));
    const std::vector<std::string> names = NamesOf(plans);
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(),
              names.size());
    EXPECT_EQ(cudnn_->Plan(problem)->name(), names[0]);
    EXPECT_EQ(NamesOf(again->Candidates(problem, kMax)), names);
    const auto last = again->PlanNamed(problem, names.back());
    ASSERT_NE(last, nullptr) << names.back();
    EXPECT_EQ(last->name(), names.back());
    EXPECT_EQ(last->workspace_size_bytes(),
              plans.back()->workspace_size_bytes());
    num_candidates += plans.size();
  }
  // there is a choice
  EXPECT_GT(num_candidates, 10 * lines.size());
}

TEST_F(CudnnCandidatesTest, WithoutTF32NoneRounds) {
  int num_problems = 0;
  bool tf32_has_others = false;
  for (const std::string& line : GoldenLines()) {
    ConvolutionProblem problem = ProblemOf(line);
    if (problem.dtype != DType::kF32) continue;
    SCOPED_TRACE(line);
    ++num_problems;
    problem.has_bias = problem.has_relu = false;
    problem.allows_tf32 = false;
    for (const auto& plan : cudnn_->Candidates(problem, kMax)) {
      EXPECT_FALSE(plan->choice().rounds_f32) << plan->name();
    }
    // nor is one found by its name
    problem.allows_tf32 = true;
    for (const auto& plan : cudnn_->Candidates(problem, kMax)) {
      if (!plan->choice().rounds_f32) continue;
      tf32_has_others = true;
      ConvolutionProblem exact = problem;
      exact.allows_tf32 = false;
      EXPECT_EQ(cudnn_->PlanNamed(exact, plan->name()), nullptr);
    }
  }
  EXPECT_GE(num_problems, 10);
  EXPECT_TRUE(tf32_has_others);
}

TEST_F(CudnnCandidatesTest, ANameThatTheLibraryDoesNotHaveGivesNoPlan) {
  const ConvolutionProblem problem = ProblemOf(GoldenLines()[0]);
  EXPECT_EQ(cudnn_->PlanNamed(problem, "engine 12345"), nullptr);
  EXPECT_EQ(cudnn_->PlanNamed(problem, ""), nullptr);
}

}  // namespace
}  // namespace replicant::kernels::cuda
