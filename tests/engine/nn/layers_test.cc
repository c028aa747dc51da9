#include "engine/nn/layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"
#include "engine/nn/optimizers.h"
#include "engine/nn/single_replica.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::nn {
namespace {

using testing::GraphRunner;
using testing::MessageOf;
using testing::RandomNormal;
using testing::ToDoubles;
using testing::Values;
using V = std::vector<double>;

constexpr CallSite kSite{"model.cc", 12};

TEST(DenseTest, IsTheProductWithTheTransposedWeightAndTheBias) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", Values(DType::kF32, Shape({1, 2}), {1, 2}));
  const Graph::Scope scope(runner.graph(), "critic");
  const Dense layer(runner.graph(), "hidden", 2, 3);
  runner.store().Declare(runner.graph());
  runner.store().Set(
      "critic/hidden/weight",
      Values(DType::kF32, Shape({3, 2}), {1, 0, 0, 1, 1, 1}).view());
  runner.store().Set("critic/hidden/bias",
                     Values(DType::kF32, Shape({3}), {10, 20, 30}).view());
  EXPECT_EQ(runner.Eval(layer(x)), (V{11, 22, 33}));
}

TEST(DenseTest, AnErrorNamesTheLineThatAppliesTheLayer) {
  GraphRunner runner;
  const Output x = runner.graph().Input("x", DType::kF32, Shape({1, 3}));
  const Dense layer(runner.graph(), "hidden", 2, 3);
  EXPECT_EQ(MessageOf([&] { layer(x, kSite); }),
            "model.cc:12: MatMul 'MatMul': inner dimensions differ: a f32[1,3] "
            "and b f32[3,2] transposed");
}

TEST(DenseTest, ActivationAndBiasBecomeOneKernel) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", RandomNormal(DType::kF32, Shape({4, 2}), 1));
  const Dense layer(runner.graph(), "hidden", 2, 3);
  const auto plan = runner.Compile({.outputs = {graph::Relu(layer(x))}});
  EXPECT_EQ(plan->report().num_kernels, 1);
}

TEST(ConvTest, LayerAddsABiasPerChannel) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", Values(DType::kF32, Shape({1, 1, 2, 1}), {1, 2}));
  const Conv2d layer(runner.graph(), "conv", 1, 2, 1, {},
                     {.weight = Constant(3.0), .bias = Constant(0.5)});
  EXPECT_EQ(runner.Eval(layer(x)), (V{3.5, 3.5, 6.5, 6.5}));
}

TEST(LayerNormTest, StartsAsThePlainNorm) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", Values(DType::kF64, Shape({1, 2}), {1, 3}));
  const LayerNorm layer(runner.graph(), "norm", 2, DType::kF64);
  const double y = 1.0 / std::sqrt(1.0 + 1e-5);
  const V values = runner.Eval(layer(x));
  EXPECT_NEAR(values[0], -y, 1e-15);
  EXPECT_NEAR(values[1], y, 1e-15);
}

TEST(BatchNormTest, RunningStatisticsMoveTowardsTheBatch) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", Values(DType::kF64, Shape({2, 1}), {1, 3}));
  const BatchNorm layer(runner.graph(), "bn", 1,
                        {.momentum = 0.5, .dtype = DType::kF64});
  // asked for before the update is added: reads what a run finds
  const Output inferred = layer.Infer(x);
  std::vector<Output> updates;
  const Output y = layer.Train(x, &updates);
  const auto plan = runner.Compile({.outputs = {y}, .updates = updates});
  plan->Run();
  // batch mean 2, unbiased variance 2
  EXPECT_EQ(ToDoubles(runner.store().Get("bn/running_mean").view()), (V{1.0}));
  EXPECT_EQ(ToDoubles(runner.store().Get("bn/running_var").view()), (V{1.5}));
  EXPECT_NEAR(runner.Eval(inferred)[1], (3.0 - 1.0) / std::sqrt(1.5 + 1e-5),
              1e-15);
}

TEST(ConditionalBatchNormTest, UsesTheVectorsOfTheClass) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", Values(DType::kF64, Shape({2, 1}), {1, 3}));
  const Output labels =
      runner.Input("labels", Values(DType::kI32, Shape({2}), {2, 0}));
  const ConditionalBatchNorm layer(runner.graph(), "cbn", 3, 1,
                                   {.dtype = DType::kF64});
  runner.store().Declare(runner.graph());
  runner.store().Set("cbn/weight",
                     Values(DType::kF64, Shape({3, 1}), {10, 20, 30}).view());
  runner.store().Set("cbn/bias",
                     Values(DType::kF64, Shape({3, 1}), {1, 2, 3}).view());
  // running mean 0 and variance 1, then the batch's: 2 and 1
  const double inferred = 1.0 / std::sqrt(1.0 + 1e-5);
  const V first = runner.Eval(layer.Infer(x, labels));
  EXPECT_NEAR(first[0], 30 * inferred + 3, 1e-12);
  EXPECT_NEAR(first[1], 10 * 3 * inferred + 1, 1e-12);
  std::vector<Output> updates;
  const V trained =
      runner.Eval(layer.Train(x, labels, &updates, {.has_relu = true}));
  EXPECT_EQ(trained[0], 0.0);
  EXPECT_NEAR(trained[1], 10 * inferred + 1, 1e-12);
  EXPECT_EQ(updates.size(), 1u);
}

TEST(BatchNormTest, RefusesToTrainOnOneElement) {
  GraphRunner runner;
  const Output x = runner.graph().Input("x", DType::kF32, Shape({1, 2}));
  const BatchNorm layer(runner.graph(), "bn", 2);
  std::vector<Output> updates;
  EXPECT_EQ(MessageOf([&] { layer.Train(x, &updates, {}, kSite); }),
            "model.cc:12: BatchNorm: want at least two elements per channel to "
            "train, got f32[1,2]");
}

// A network of two layers fits y = x1 * x2 on 16 points: the whole engine in
// one loop. The loss starts near the mean square of y, about 0.3.
TEST(TrainingTest, AdamFitsASmallFunction) {
  GraphRunner runner("reference", /*seed=*/1);
  Graph& g = runner.graph();
  const HostTensor points = RandomNormal(DType::kF32, Shape({16, 2}), 5);
  V products;
  for (size_t i = 0; i < 16; ++i) {
    products.push_back(static_cast<double>(points.Span<float>()[2 * i]) *
                       static_cast<double>(points.Span<float>()[2 * i + 1]));
  }
  const Output x = runner.Input("x", HostTensor::Clone(points.view()));
  const Output y =
      runner.Input("y", Values(DType::kF32, Shape({16, 1}), products));
  const Dense hidden(g, "hidden", 2, 16);
  const Dense last(g, "last", 16, 1);
  const Output loss = graph::ReduceMean(
      graph::Square(graph::Sub(last(graph::Tanh(hidden(x))), y)));
  std::vector<VariableId> parameters = hidden.variables();
  parameters.insert(parameters.end(), last.variables().begin(),
                    last.variables().end());
  std::vector<Output> reads;
  reads.reserve(parameters.size());
  for (const VariableId parameter : parameters) {
    reads.push_back(g.Read(parameter));
  }
  const StepCounter step = AddStepCounter(g);
  SingleReplica replica(g);
  const Output update =
      Adam(replica, "adam", parameters, graph::Gradients(loss, reads),
           LinearSchedule(step.value, 0.05, 0.01, 0, 300), step.value, {},
           {.max_global_norm = 1.0});
  const auto plan =
      runner.Compile({.outputs = {loss}, .updates = {update, step.advance}});
  plan->Run();
  const float first = plan->output(0).Span<float>()[0];
  for (int i = 0; i < 300; ++i) plan->Run();
  const float final_loss = plan->output(0).Span<float>()[0];
  EXPECT_GT(first, 0.2F);
  EXPECT_LT(final_loss, 0.01F);
  EXPECT_EQ(runner.store().Get("step").Span<int64_t>()[0], 301);
  EXPECT_TRUE(runner.store().Has("adam/m/hidden/weight"));
}

TEST(ScheduleTest, FollowsItsFormula) {
  GraphRunner runner;
  const Output step = runner.Input("step", Values(DType::kI64, Shape({}), {0}));
  const auto plan = runner.Compile(
      {.outputs = {LinearSchedule(step, 1.0, 0.5, 10, 20),
                   CosineSchedule(step, 2.0, 20),
                   PiecewiseConstantSchedule(step, {5, 15}, {1, 2, 3})}});
  for (const int64_t at : {0, 5, 10, 15, 20, 30}) {
    plan->input("step").Span<int64_t>()[0] = at;
    plan->Run();
    const auto t = static_cast<double>(at);
    const double part = std::clamp((t - 10.0) / 10.0, 0.0, 1.0);
    const double angle = std::numbers::pi * std::fmin(t, 20.0) / 20.0;
    // roundings of f32 numbers of order 1
    EXPECT_NEAR(ToDoubles(plan->output(0))[0], 1.0 - 0.5 * part, 1e-6);
    EXPECT_NEAR(ToDoubles(plan->output(1))[0], 1.0 + std::cos(angle), 1e-6);
    EXPECT_EQ(ToDoubles(plan->output(2))[0], at < 5 ? 1 : at < 15 ? 2 : 3);
  }
}

TEST(ScheduleTest, RefusesWhatIsNoSchedule) {
  Graph g;
  const Output step = g.Input("step", DType::kI64, Shape({}));
  EXPECT_EQ(
      MessageOf([&] { LinearSchedule(step, 1, 0, 5, 5, DType::kF32, kSite); }),
      "model.cc:12: LinearSchedule: want begin < end, got 5 and 5");
  EXPECT_EQ(MessageOf([&] { CosineSchedule(step, 1, 0, DType::kF32, kSite); }),
            "model.cc:12: CosineSchedule: want length >= 1, got 0");
  EXPECT_EQ(
      MessageOf([&] {
        PiecewiseConstantSchedule(step, {5}, {1}, DType::kF32, kSite);
      }),
      "model.cc:12: PiecewiseConstantSchedule: want ascending boundaries and "
      "one value more, got 1 boundaries and 1 values");
}

}  // namespace
}  // namespace replicant::nn
