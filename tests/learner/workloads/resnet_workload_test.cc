#include "learner/workloads/resnet_workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "engine/nn/single_replica.h"
#include "models/resnet/update.h"
#include "tests/learner/workloads/small_image_models.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::learner {
namespace {

using testing::GraphRunner;
using testing::MessageOf;
using testing::ToDoubles;

class ResNetPrecisionTest : public ::testing::TestWithParam<graph::Precision> {
};

INSTANTIATE_TEST_SUITE_P(Both, ResNetPrecisionTest,
                         ::testing::Values(graph::Precision::kF32,
                                           graph::Precision::kBF16));

TEST_P(ResNetPrecisionTest, LearnsToTellWavesApart) {
  ResNetWorkload workload = MakeResNet(SmallResNet(), GetParam());
  double first_loss = 0.0;
  double accuracy = 0.0;
  constexpr int kSteps = 60;
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_EQ(workload.Step({}), NextResult::kOk);
    const auto scalars = workload.Scalars();
    if (i == 0) first_loss = scalars[0].second;
    // of the last ten batches, 160 images
    if (i >= kSteps - 10) accuracy += scalars[1].second / 10.0;
  }
  // chance is 1/3
  EXPECT_GT(accuracy, 0.8);
  EXPECT_GT(first_loss, 0.5);
}

TEST(ResNetWorkloadTest, GoesOnFromItsState) {
  ResNetWorkload workload = MakeResNet(SmallResNet());
  ASSERT_EQ(workload.Step({}), NextResult::kOk);
  EXPECT_EQ(workload.State().at("batches"), "1");
  ResNetWorkload resumed = MakeResNet(SmallResNet());
  resumed.Restore(workload.State());
  for (const auto& [name, variable] : workload.variables().variables()) {
    resumed.variables().Set(name, workload.variables().Get(name).view());
  }
  ASSERT_EQ(workload.Step({}), NextResult::kOk);
  ASSERT_EQ(resumed.Step({}), NextResult::kOk);
  EXPECT_EQ(workload.Scalars(), resumed.Scalars());
  EXPECT_EQ(MessageOf([&] { resumed.Restore({}); }), "checkpoint: no batches");
  EXPECT_EQ(MessageOf([&] {
              resumed.Restore({{"batches", "-1"}});
            }),
            "checkpoint: batches: want a whole number >= 0, got '-1'");
}

TEST(ResNetWorkloadTest, GoesOnInTheOtherPrecision) {
  ResNetWorkload workload = MakeResNet(SmallResNet());
  ASSERT_EQ(workload.Step({}), NextResult::kOk);
  ResNetWorkload resumed = MakeResNet(SmallResNet(), graph::Precision::kBF16);
  resumed.Restore(workload.State());
  for (const auto& [name, variable] : workload.variables().variables()) {
    EXPECT_NE(variable.spec.dtype, DType::kBF16) << name;
    resumed.variables().Set(name, workload.variables().Get(name).view());
  }
  ASSERT_EQ(workload.Step({}), NextResult::kOk);
  ASSERT_EQ(resumed.Step({}), NextResult::kOk);
  const double loss = workload.Scalars()[0].second;
  const double resumed_loss = resumed.Scalars()[0].second;
  // a step of bf16 is 2^-8; some twenty layers round one after the other
  EXPECT_NEAR(resumed_loss, loss, 20 * 0x1p-8 * loss);
  EXPECT_NE(resumed_loss, loss);
}

// The last norm of a block starts with a scale of zero, the others with one.
TEST(ResNetTest, BlocksStartAsTheIdentityIfAsked) {
  for (const bool has_zero_gamma : {true, false}) {
    GraphRunner runner;
    models::resnet::ResNetConfig config = SmallResNet();
    config.depth = models::resnet::Depth::k50;
    config.has_zero_gamma = has_zero_gamma;
    nn::SingleReplica replica(runner.graph());
    const models::resnet::ResNet network(replica, config);
    runner.store().Declare(runner.graph());
    const auto first = [&](const std::string& name) {
      return ToDoubles(runner.store().Get(name).view())[0];
    };
    EXPECT_EQ(first("layer2/1/bn3/weight"), has_zero_gamma ? 0.0 : 1.0);
    EXPECT_EQ(first("layer2/1/bn2/weight"), 1.0);
    EXPECT_EQ(first("layer2/0/downsample/1/weight"), 1.0);
  }
}

TEST(ResNetTest, LearningRateWarmsUpAndFallsInSteps) {
  const models::resnet::SgdConfig config{
      .learning_rate = 0.8, .warm_up_steps = 4, .decay_steps = {6, 8}};
  const std::map<int, double> expected = {{0, 0.2}, {1, 0.4},  {3, 0.8},
                                          {5, 0.8}, {6, 0.08}, {8, 0.008}};
  for (const auto& [step, rate] : expected) {
    GraphRunner runner;
    const graph::Output value = runner.graph().Scalar(step, DType::kI64);
    EXPECT_NEAR(runner.Eval(models::resnet::LearningRate(config, value))[0],
                rate, 1e-6)
        << step;
  }
}

TEST(ResNetTest, LearningRateFallsByACosine) {
  const models::resnet::SgdConfig config{
      .learning_rate = 0.8,
      .warm_up_steps = 2,
      .schedule = models::resnet::Schedule::kCosine,
      .total_steps = 12};
  const auto cosine = [](double step) {
    return 0.4 * (1.0 + std::cos(std::numbers::pi * step / 12.0));
  };
  for (const int step : {0, 1, 3, 6, 11, 12, 20}) {
    GraphRunner runner;
    const graph::Output value = runner.graph().Scalar(step, DType::kI64);
    EXPECT_NEAR(runner.Eval(models::resnet::LearningRate(config, value))[0],
                cosine(std::min(step, 12)) * (step == 0 ? 0.5 : 1.0), 1e-6)
        << step;
  }
}

// One step from rest moves a weight by the rate times the trust ratio times the
// decayed gradient, whatever the loss is scaled by; a bias moves as by SGD.
TEST(ResNetTest, LarsMovesEachWeightByAShareOfItsNorm) {
  models::resnet::ResNetConfig config = SmallResNet();
  config.optimizer = {.kind = models::resnet::OptimizerKind::kLars,
                      .trust_coefficient = 0.01,
                      .learning_rate = 0.5,
                      .weight_decay = 0.0};
  ResNetWorkload workload = MakeResNet(config);
  std::map<std::string, HostTensor> before;
  for (const auto& [name, variable] : workload.variables().variables()) {
    if (variable.spec.is_trainable) {
      before.emplace(name, workload.variables().Get(name));
    }
  }
  ASSERT_EQ(workload.Step(Clock::Real().Now() + std::chrono::minutes(1)),
            NextResult::kOk);
  int num_weights = 0;
  for (const auto& [name, old] : before) {
    if (old.shape().rank() < 2) continue;
    ++num_weights;
    const HostTensor now = workload.variables().Get(name);
    const std::vector<double> a = ToDoubles(old.view()),
                              b = ToDoubles(now.view());
    double size = 0.0, moved = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
      size += a[i] * a[i];
      moved += (b[i] - a[i]) * (b[i] - a[i]);
    }
    // 0 where a zero gamma cuts the gradient off
    if (moved == 0.0) continue;
    EXPECT_NEAR(std::sqrt(moved / size), 0.5 * 0.01, 1e-5) << name;
  }
  EXPECT_GT(num_weights, 10);
}

}  // namespace
}  // namespace replicant::learner
