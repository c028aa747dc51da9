#include "examples/fit/fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"
#include "engine/nn/layers.h"
#include "tests/support/message_of.h"

namespace replicant::fit {
namespace {

using graph::Graph;
using graph::Output;
using testing::MessageOf;

// y = 2 x_0 - 3 x_1 + 1, for 50 examples.
Dataset Line(int64_t size = 50) {
  HostTensor x(DType::kF32, Shape({size, 2}));
  HostTensor y(DType::kF32, Shape({size, 1}));
  for (int64_t i = 0; i < size; ++i) {
    const auto at = static_cast<size_t>(i);
    const float a = std::sin(static_cast<float>(i));
    const float b = std::cos(1.7F * static_cast<float>(i));
    x.MutableSpan<float>()[2 * at] = a;
    x.MutableSpan<float>()[2 * at + 1] = b;
    y.MutableSpan<float>()[at] = 2.0F * a - 3.0F * b + 1.0F;
  }
  Dataset dataset;
  dataset.columns.push_back({.name = "x", .values = std::move(x)});
  dataset.columns.push_back({.name = "y", .values = std::move(y)});
  return dataset;
}

Model Linear() {
  return {
      .scores = [](Graph& g, const replicator::Inputs& batch) -> Model::Scores {
        const nn::Dense layer(g, "layer", 2, 1);
        const Output error = graph::Sub(layer(batch.at("x")), batch.at("y"));
        return {{"loss", graph::ReduceMean(graph::Square(error))},
                {"distance", graph::ReduceMean(graph::Abs(error))}};
      }};
}

std::map<std::string, std::vector<float>> Values(const FitResult& result) {
  std::map<std::string, std::vector<float>> values;
  for (const auto& [name, value] : result.variables) {
    const auto span = value.Span<float>();
    values[name] = {span.begin(), span.end()};
  }
  return values;
}

TEST(FitTest, ReportsEveryEpochAndEvaluatesAllExamples) {
  const TemporaryFolder folder;
  const Dataset training = Line();
  // batches of 8 and a rest of 3
  const Dataset held_out = Line(19);
  const FitResult result = Fit(Linear(), training,
                               {.folder = folder.path() / "run",
                                .epochs = 40,
                                .batch_size = 8,
                                .evaluation = &held_out});
  // 6.25 batches an epoch
  EXPECT_EQ(result.num_steps, 250);
  ASSERT_EQ(result.epochs.size(), 40U);
  EXPECT_LT(result.epochs.back().at("loss"), result.epochs.front().at("loss"));
  // by hand, with the trained variables
  const auto values = Values(result);
  const std::vector<float>& w = values.at("layer/weight");
  const float bias = values.at("layer/bias")[0];
  double loss = 0.0;
  for (size_t i = 0; i < 19; ++i) {
    const auto x = held_out.columns[0].values.Span<float>();
    const double error = w[0] * x[2 * i] + w[1] * x[2 * i + 1] + bias -
                         held_out.columns[1].values.Span<float>()[i];
    loss += error * error / 19.0;
  }
  EXPECT_NEAR(result.epochs.back().at("evaluation_loss"), loss, 1e-4 * loss);
}

// Would catch an optimizer or a position that is lost: the examples of an epoch
// come in another order in each.
TEST(FitTest, GoesOnWhereItEnded) {
  const TemporaryFolder folder;
  const Dataset training = Line();
  FitOptions options{.folder = folder.path() / "whole",
                     .epochs = 6,
                     .batch_size = 8,
                     .seed = 3};
  const FitResult whole = Fit(Linear(), training, options);
  options.folder = folder.path() / "parts";
  options.epochs = 2;
  EXPECT_EQ(Fit(Linear(), training, options).num_steps, 13);
  options.epochs = 6;
  const FitResult resumed = Fit(Linear(), training, options);
  EXPECT_EQ(resumed.num_steps, whole.num_steps);
  EXPECT_EQ(resumed.epochs.size(), 4U);
  EXPECT_EQ(Values(resumed), Values(whole));
  // nothing is left to do
  EXPECT_TRUE(Fit(Linear(), training, options).epochs.empty());
}

// 9 / (9.0 / 7.0) is less than 7.
TEST(FitTest, EndsAtTheEpochItWasGiven) {
  const TemporaryFolder folder;
  const FitResult result =
      Fit(Linear(), Line(9),
          {.folder = folder.path() / "run", .epochs = 7, .batch_size = 7});
  EXPECT_EQ(result.num_steps, 9);
  EXPECT_EQ(result.epochs.size(), 7U);
}

TEST(FitTest, ReplicasLearnAsOne) {
  const TemporaryFolder folder;
  const Dataset training = Line();
  FitOptions options{
      .folder = folder.path() / "one", .epochs = 4, .batch_size = 8};
  const auto one = Values(Fit(Linear(), training, options));
  options.folder = folder.path() / "four";
  options.replication.strategy = &replicator::Strategy::kInGraph;
  options.replication.replicas = 4;
  for (const auto& [name, value] : Values(Fit(Linear(), training, options))) {
    for (size_t i = 0; i < value.size(); ++i) {
      EXPECT_NEAR(value[i], one.at(name)[i], 1e-4) << name;
    }
  }
}

TEST(FitTest, LearnsWithReplicasThatDoNotWait) {
  const TemporaryFolder folder;
  const Dataset training = Line();
  FitOptions options{
      .folder = folder.path() / "run", .epochs = 30, .batch_size = 8};
  options.replication.strategy = &replicator::Strategy::kHogwild;
  options.replication.replicas = 2;
  options.evaluation = &training;
  const FitResult result = Fit(Linear(), training, options);
  ASSERT_FALSE(result.epochs.empty());
  EXPECT_LT(result.epochs.back().at("evaluation_loss"),
            result.epochs.front().at("evaluation_loss"));
}

TEST(FitTest, RefusesWhatDoesNotFit) {
  const TemporaryFolder folder;
  const FitOptions options{.folder = folder.path() / "run"};
  Dataset uneven = Line();
  uneven.columns[1].values = HostTensor(DType::kF32, Shape({49, 1}));
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { Fit(Linear(), uneven, options); }),
            "Dataset: column 'y' is [49,1] of f32; want a row for each of 50 "
            "examples");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { Fit(Linear(), {}, options); }),
            "Dataset: no columns");
  const Model vector{
      .scores = [](Graph&, const replicator::Inputs& batch) -> Model::Scores {
        return {{"loss", graph::ReduceMean(batch.at("x"), {.axes = {1}})}};
      }};
  const Dataset training = Line();
  EXPECT_NE(MessageOf<InvalidArgument>([&] { Fit(vector, training, options); }),
            "");
}

}  // namespace
}  // namespace replicant::fit
