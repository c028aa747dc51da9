// cuDNN plans every convolution of the three workloads for an H100 that is
// described and not there.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/kernels/cuda/library_backend.h"
#include "programs/plan/plan_program.h"
#include "tests/programs/plans_of_file.h"
#include "tests/support/h100.h"
#include "tests/support/message_of.h"

namespace replicant::programs {
namespace {

using kernels::cuda::ConvolutionKind;
using kernels::cuda::ConvolutionLibrary;
using kernels::cuda::ConvolutionPlan;
using kernels::cuda::ConvolutionProblem;
using ::testing::HasSubstr;
using testing::MessageOf;

constexpr const char* kGolden = "tests/golden/cudnn/h100_plans.txt";

std::string KindName(ConvolutionKind kind) {
  switch (kind) {
    case ConvolutionKind::kForward:
      return "forward";
    case ConvolutionKind::kInputGradient:
      return "input_gradient";
    case ConvolutionKind::kWeightGradient:
      break;
  }
  return "weight_gradient";
}

std::string ToString(const ConvolutionProblem& p) {
  return fmt::format("{} x {}x{}x{}x{} w {}x{}x{}x{} stride {} padding {} {}{}",
                     KindName(p.kind), p.b, p.h, p.w, p.c, p.o, p.kh, p.kw, p.c,
                     p.stride, p.padding,
                     p.allows_tf32 ? "tf32" : DTypeName(p.dtype),
                     p.has_relu   ? " bias relu"
                     : p.has_bias ? " bias"
                                  : "");
}

// The library that plans all steps; notes each problem once.
class NotingLibrary : public ConvolutionLibrary {
 public:
  explicit NotingLibrary(std::shared_ptr<ConvolutionLibrary> library)
      : library_(std::move(library)) {}

  std::unique_ptr<ConvolutionPlan> Plan(
      const ConvolutionProblem& problem) override {
    auto plan = library_->Plan(problem);
    if (plan == nullptr) return nullptr;
    lines_.insert(fmt::format("{}: engine {} of {} candidates, workspace {}",
                              ToString(problem), plan->choice().engine,
                              plan->choice().num_candidates,
                              plan->workspace_size_bytes()));
    return plan;
  }

  // "problem: choice", one for each problem, sorted.
  std::vector<std::string> lines() const {
    return {lines_.begin(), lines_.end()};
  }

 private:
  const std::shared_ptr<ConvolutionLibrary> library_;
  std::set<std::string> lines_;
};

void CompileSteps(const std::string& file, const std::string& precision,
                  const std::shared_ptr<ConvolutionLibrary>& library) {
  PlansOfFile(file, precision,
              [&](std::string_view /*name*/,
                  const kernels::BackendOptions& /*options*/) {
                return kernels::cuda::MakeDescribedBackendOn(library);
              });
}

// The workloads in the precisions that they are trained in.
std::vector<std::string> PlanAll(std::shared_ptr<ConvolutionLibrary> library) {
  const auto noting = std::make_shared<NotingLibrary>(std::move(library));
  for (const auto& [file, precision] :
       {std::pair{"cartpole_swingup_pixels.yaml", "f32"},
        std::pair{"cartpole_swingup_pixels.yaml", "tf32"},
        std::pair{"cartpole_swingup_pixels.yaml", "bf16"},
        std::pair{"resnet50_imagenet.yaml", "bf16"},
        std::pair{"sngan32_synthetic.yaml", "bf16"}}) {
    CompileSteps(file, precision, noting);
  }
  return noting->lines();
}

std::vector<std::string> LinesOf(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// "problem" of "problem: choice".
std::vector<std::string> ProblemsOf(std::vector<std::string> lines) {
  for (std::string& line : lines) line.resize(line.find(':'));
  return lines;
}

// Engines are a version's own. With another one the problems alone are
// compared: each has had a plan.
TEST(ConvolutionPlansTest, EveryConvolutionHasItsPlanOnAnH100) {
  const std::shared_ptr<ConvolutionLibrary> cudnn =
      kernels::cuda::MakeCudnn(testing::kH100);
  std::string version;
  try {
    version = cudnn->version();
  } catch (const DeviceError& e) {
    GTEST_SKIP() << e.what();
  }
  std::vector<std::string> lines = PlanAll(cudnn);
  // scripts/goldens/make_cudnn
  if (const char* const out = std::getenv("REPLICANT_CUDNN_GOLDEN")) {
    std::ofstream file(out);
    file << version << "\n";
    for (const std::string& line : lines) file << line << "\n";
    return;
  }
  std::vector<std::string> golden =
      LinesOf(std::filesystem::path(REPLICANT_SOURCE_DIR) / kGolden);
  ASSERT_FALSE(golden.empty()) << kGolden;
  const bool is_same_version = golden[0] == version;
  golden.erase(golden.begin());
  if (is_same_version) {
    EXPECT_EQ(lines, golden) << "hint: scripts/goldens/make_cudnn";
  } else {
    EXPECT_EQ(ProblemsOf(lines), ProblemsOf(golden));
  }
}

class NoEngines : public ConvolutionLibrary {
 public:
  std::unique_ptr<ConvolutionPlan> Plan(
      const ConvolutionProblem& /*problem*/) override {
    return nullptr;
  }
};

// catches a convolution without a plan that goes unnoticed
TEST(ConvolutionPlansTest, AConvolutionWithoutAPlanIsAnError) {
  EXPECT_THAT(MessageOf<DeviceError>([] {
                CompileSteps("cartpole_swingup_pixels.yaml", "f32",
                             std::make_shared<NoEngines>());
              }),
              HasSubstr("cuDNN has no engine for the convolution of images "
                        "[64,64,64,9]"));
}

}  // namespace
}  // namespace replicant::programs
