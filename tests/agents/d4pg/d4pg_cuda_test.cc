// Whole D4PG steps on the CUDA backend, without a GPU
// (tests/support/fake_cuda).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/fs.h"
#include "engine/kernels/cuda/library_backend.h"
#include "engine/kernels/plan_cache.h"
#include "engine/runtime/executor.h"
#include "tests/support/fake_cuda/fake_backend.h"
#include "tests/support/fake_cuda/host_compiler.h"
#include "tests/support/fake_cuda/host_convolution.h"
#include "tests/support/fake_cuda/host_matmul.h"
#include "tests/support/tensor_values.h"
#include "tools/probe/d4pg_step.h"

namespace replicant::agents::d4pg {
namespace {

using kernels::Backend;
using probe::d4pg::BuildStepGraph;
using probe::d4pg::StepGraphConfig;
using ::testing::Contains;
using testing::FakeDriver;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ToDoubles;

// From a state; small, for the reference computes in plain loops.
StepGraphConfig SmallConfig() {
  StepGraphConfig config;
  config.observation = {7};
  config.action_size = 3;
  config.batch_size = 16;
  config.agent.networks.policy_hidden_sizes = {24, 20};
  config.agent.networks.critic_hidden_sizes = {24, 20};
  return config;
}

using Values = std::map<std::string, std::vector<double>>;

void FillInputs(const graph::Graph& graph, runtime::Executor& plan,
                uint64_t seed) {
  for (const graph::Node& node : graph.nodes()) {
    if (node.op != &graph::InputOp()) continue;
    const graph::TensorType& type = node.output_type();
    // rewards, discounts and weights are positive
    const double low = node.name.find("observation") == std::string::npos &&
                               node.name != "action"
                           ? 0.1
                           : -1.0;
    const HostTensor value =
        testing::RandomUniform(type.dtype, type.shape, low, 0.9, seed++);
    std::memcpy(plan.input(node.name).data(), value.bytes().data(),
                value.size_bytes());
  }
}

// Results of the last of some steps, and the variables after it.
Values Train(Backend& backend, const StepGraphConfig& config, int num_steps) {
  const probe::StepGraph step = BuildStepGraph(config, DType::kF32);
  runtime::VariableStore store(backend, /*seed=*/3);
  if (step.start_graph != nullptr) {
    runtime::Executor start(*step.start_graph, {.updates = step.start_updates},
                            store);
    start.Run();
  }
  std::vector<probe::NamedOutput> results = step.losses;
  results.insert(results.end(), step.outputs.begin(), step.outputs.end());
  runtime::PlanSpec spec{.updates = step.updates};
  for (const probe::NamedOutput& result : results) {
    spec.outputs.push_back(result.output);
  }
  runtime::Executor plan(*step.graph, spec, store);
  for (int i = 0; i < num_steps; ++i) {
    FillInputs(*step.graph, plan, 100 * static_cast<uint64_t>(i));
    plan.Run();
  }
  Values values;
  for (size_t i = 0; i < results.size(); ++i) {
    values[results[i].name] = ToDoubles(plan.output(i));
  }
  for (const auto& [name, variable] : store.variables()) {
    values["variable " + name] = ToDoubles(store.Get(name).view());
  }
  return values;
}

// Largest distance relative to the largest value, or to 1e-3 if all are
// smaller.
double RelativeError(const std::vector<double>& got,
                     const std::vector<double>& want) {
  double scale = 1e-3;
  for (const double w : want) scale = std::max(scale, std::fabs(w));
  double error = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double distance = std::fabs(got[i] - want[i]) / scale;
    // written so that NaN counts as the largest error
    if (!(distance <= error)) error = distance;
  }
  return error;
}

// How often a text holds another.
int64_t CountOf(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

class D4pgCudaTest : public ::testing::Test {
 protected:
  void TearDown() override {
    backend_.reset();
    EXPECT_THAT(driver_->problems(), IsEmpty());
    EXPECT_THAT(driver_->live(), IsEmpty());
  }

  const std::shared_ptr<FakeDriver> driver_ = std::make_shared<FakeDriver>();
  std::unique_ptr<Backend> backend_ = testing::MakeFakeCudaBackend(driver_);
};

// Both compute in at least f32 from the same f32 variables. Adam divides by the
// square root of squared gradients, so that an error in a small gradient is an
// error of its own size in the step: 5 steps at rate 1e-4 against weights of
// order 0.1 leave 1e-4 of room for a gradient that is all rounding.
TEST_F(D4pgCudaTest, StepsFromAStateMatchTheReference) {
  const auto reference = kernels::MakeBackend("reference");
  const StepGraphConfig config = SmallConfig();
  const Values want = Train(*reference, config, /*num_steps=*/5);
  const Values got = Train(*backend_, config, /*num_steps=*/5);
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, values] : want) {
    EXPECT_LE(RelativeError(got.at(name), values), 1e-4) << name;
  }
}

// From pixels, by a small encoder.
StepGraphConfig PixelConfig() {
  StepGraphConfig config = SmallConfig();
  config.observation = {12, 12, 3};
  config.batch_size = 4;
  config.agent.networks.encoder.kind = EncoderKind::kCustom;
  config.agent.networks.encoder.channels = {4, 4};
  config.agent.networks.encoder.kernels = {3, 3};
  config.agent.networks.encoder.strides = {2, 1};
  config.agent.networks.embedding_size = 10;
  return config;
}

// Libraries with four plans of each problem, of which the third is the fastest
// and the last does not run.
template <typename Problem>
std::vector<testing::HostCandidate> FourCandidates(const Problem& /*problem*/) {
  return {{.name = "a", .time_us = 3.0, .workspace_size_bytes = 64},
          {.name = "b", .time_us = 2.0, .workspace_size_bytes = 640},
          {.name = "c", .time_us = 1.0, .workspace_size_bytes = 320},
          {.name = "d", .fails = true}};
}

// Every plan of the libraries of the test computes the same numbers, so that
// tuning changes no bit. Catches a tuner that changes a step: memory that it
// leaves or takes, a workspace that is another plan's, a plan of another
// problem.
//
// The bound is the same as for the steps above, except for biases, which begin
// at 0: 5 steps at rate 1e-4 move them by 5e-4, half of the scale of
// RelativeError().
TEST_F(D4pgCudaTest, StepsWithTunedPlansMatchTheReference) {
  const TemporaryFolder folder;
  const auto reference = kernels::MakeBackend("reference");
  const auto make_tuned = [&] {
    using kernels::cuda::ConvolutionProblem;
    using kernels::cuda::MatMulProblem;
    return kernels::cuda::MakeBackendOn(
        {.driver = driver_,
         .compiler = testing::MakeHostSourceCompiler(),
         .matmul =
             testing::MakeHostMatMul(driver_, &FourCandidates<MatMulProblem>),
         .convolution = testing::MakeHostConvolution(
             driver_, &FourCandidates<ConvolutionProblem>),
         .nccl = nullptr},
        {.tuned_plans = std::make_shared<kernels::PlanCache>(folder.path())});
  };
  const auto count = [&](const std::string& call) {
    const std::vector<std::string> calls = driver_->calls();
    return std::ranges::count(calls, call);
  };
  for (const StepGraphConfig& config : {SmallConfig(), PixelConfig()}) {
    const Values want = Train(*reference, config, /*num_steps=*/5);
    const Values got = Train(*make_tuned(), config, /*num_steps=*/5);
    const auto num_timed = count("cuEventElapsedTime");
    EXPECT_GT(num_timed, 0);
    EXPECT_EQ(Train(*backend_, config, /*num_steps=*/5), got);
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, values] : want) {
      EXPECT_LE(RelativeError(got.at(name), values),
                name.ends_with("bias") ? 1e-3 : 1e-4)
          << name;
    }
    // another process takes the same plans, untimed
    EXPECT_EQ(Train(*make_tuned(), config, /*num_steps=*/5), got);
    EXPECT_EQ(count("cuEventElapsedTime"), num_timed);
  }
  const std::string file = ReadFile(folder.path() / "tuned_plans.txt");
  EXPECT_THAT(file, HasSubstr("convolution weight gradient"));
  EXPECT_EQ(std::ranges::count(file, '\n'),
            1 + CountOf(file, "\tc\t1.000 us\t3.000 us\n"));
}

TEST_F(D4pgCudaTest, TwoRunsGiveTheSameBits) {
  const StepGraphConfig config = SmallConfig();
  EXPECT_EQ(Train(*backend_, config, /*num_steps=*/3),
            Train(*backend_, config, /*num_steps=*/3));
}

// All parameters of an optimizer are one launch, whatever their number.
TEST_F(D4pgCudaTest, AnOptimizerIsOneLaunchAStep) {
  Train(*backend_, SmallConfig(), /*num_steps=*/2);
  const std::vector<std::string> launches = driver_->launches();
  // policy and critic
  EXPECT_EQ(std::count(launches.begin(), launches.end(), "adam_update"), 4);
}

}  // namespace
}  // namespace replicant::agents::d4pg
