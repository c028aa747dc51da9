// The pass that gives batch norms behind a residual their fused forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/graph/gradients.h"
#include "engine/graph/ops/conv.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/norm.h"
#include "engine/graph/ops/pool.h"
#include "engine/graph/ops/reduce.h"
#include "tests/support/graph_runner.h"

namespace replicant::graph {
namespace {

using testing::GraphRunner;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RandomNormal;
using testing::ToDoubles;

// The ends of two residual blocks with their gradients. The residual of the
// first is another norm's result; its own result goes to a convolution and to
// the second one's residual.
struct TwoBlocks {
  TwoBlocks(GraphRunner& runner, int64_t channels) {
    const Shape image({2, 3, 5, channels});
    const auto normal = [&](const char* name, const Shape& shape) {
      return runner.Input(name,
                          RandomNormal(DType::kF32, shape, wrt.size() + 1));
    };
    const auto add = [&](const char* name, const Shape& shape) {
      wrt.push_back(normal(name, shape));
      return wrt.back();
    };
    const Shape vector({channels});
    const Shape weights({channels, channels, 1, 1});
    // results of convolutions are bf16 where the precision is
    const Output x = Conv2d(add("x", image), normal("first_w", weights));
    const Output shortcut_x =
        Conv2d(add("shortcut", image), normal("shortcut_w", weights));
    const Output shortcut_gamma = add("shortcut_gamma", vector);
    const BatchNormOutputs shortcut =
        BatchNorm(shortcut_x, shortcut_gamma, add("shortcut_beta", vector),
                  {.epsilon = 0.1});
    outputs = {shortcut.mean, shortcut.variance};
    const Output gamma = add("gamma", vector);
    const Output beta = add("beta", vector);
    y = BatchNorm(x, gamma, beta, {.has_relu = true, .residual = shortcut.y}).y;
    const Output w = add("w", weights);
    const Output second_gamma = add("second_gamma", vector);
    const Output second_beta = add("second_beta", vector);
    const Output z = BatchNorm(Conv2d(y, w), second_gamma, second_beta,
                               {.has_relu = true, .residual = y})
                         .y;
    for (const Output& g : Gradients(ReduceSum(Square(z)), wrt)) {
      outputs.push_back(g);
    }
    outputs.push_back(z);
  }

  Output y;
  std::vector<Output> wrt, outputs;
};

std::string TextOf(GraphRunner& runner, const std::vector<Output>& outputs,
                   const PassOptions& passes) {
  return runner.Compile({.outputs = outputs}, {.passes = passes})->ToText();
}

int CountOf(const std::string& part, const std::string& text) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(FuseNormsTest, NormsHaveTheirFusedForms) {
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    GraphRunner runner;
    const TwoBlocks blocks(runner, 16);
    const std::string text =
        TextOf(runner, blocks.outputs, {.precision = precision});
    // both norms with their gradients
    EXPECT_EQ(CountOf("mask=true", text), 4) << text;
    // the first one's gradient, whose sum is gone
    EXPECT_EQ(CountOf("second_dy=true", text), 1) << text;
    EXPECT_THAT(text, Not(HasSubstr("=Add("))) << text;
    // the first one and its gradient compute the shortcut's
    EXPECT_EQ(CountOf("residual_epsilon=0.1", text), 2) << text;
    EXPECT_EQ(CountOf("= BatchStatistics(", text), 1) << text;
    EXPECT_EQ(CountOf("= BatchNormGradient(", text), 2) << text;
  }
}

// catches a mask of the wrong bits or place, and a sum that is not rounded
TEST(FuseNormsTest, NoBitChanges) {
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    for (const int64_t channels : {5, 16}) {
      GraphRunner runner;
      const TwoBlocks blocks(runner, channels);
      const auto fused = runner.Compile({.outputs = blocks.outputs},
                                        {.passes = {.precision = precision}});
      const auto plain = runner.Compile(
          {.outputs = blocks.outputs},
          {.passes = {.off = {"fuse_norms"}, .precision = precision}});
      EXPECT_EQ(CountOf("second_dy=true", fused->ToText()), 1);
      EXPECT_EQ(CountOf("second_dy=true", plain->ToText()), 0);
      fused->Run();
      plain->Run();
      for (size_t i = 0; i < blocks.outputs.size(); ++i) {
        EXPECT_EQ(ToDoubles(fused->output(i)), ToDoubles(plain->output(i)))
            << i;
      }
    }
  }
}

// A byte of a mask would lie over two rows.
TEST(FuseNormsTest, OddChannelsKeepTheResult) {
  GraphRunner runner;
  const TwoBlocks blocks(runner, 5);
  const std::string text = TextOf(runner, blocks.outputs, {});
  EXPECT_EQ(CountOf("mask=true", text), 0) << text;
  EXPECT_EQ(CountOf("second_dy=true", text), 1) << text;
}

TEST(FuseNormsTest, ASumThatOthersNeedStays) {
  GraphRunner runner;
  const TwoBlocks blocks(runner, 16);
  std::vector<Output> outputs = blocks.outputs;
  // the sum is the gradient of y
  std::vector<Output> wrt = blocks.wrt;
  wrt.push_back(blocks.y);
  outputs = Gradients(ReduceSum(Square(blocks.outputs.back())), wrt);
  const std::string text = TextOf(runner, outputs, {});
  EXPECT_EQ(CountOf("second_dy=true", text), 0) << text;
  EXPECT_EQ(CountOf("mask=true", text), 4) << text;
}

// The shortcut's result is fetched, or the gradient before the relu.
TEST(FuseNormsTest, AResidualThatOthersNeedStays) {
  GraphRunner runner;
  const auto image = [&](const char* name, uint64_t seed) {
    return runner.Input(name,
                        RandomNormal(DType::kF32, Shape({2, 3, 5, 8}), seed));
  };
  const Output gamma =
      runner.Input("gamma", RandomNormal(DType::kF32, Shape({8}), 3));
  const Output x = image("x", 1);
  const Output residual = BatchNorm(image("shortcut", 2), gamma, gamma).y;
  const Output y =
      BatchNorm(x, gamma, gamma, {.has_relu = true, .residual = residual}).y;
  const Output loss = ReduceSum(Square(y));
  const std::string with_y =
      TextOf(runner, {residual, Gradients(loss, {x, gamma})[0]}, {});
  EXPECT_EQ(CountOf("= BatchStatistics(", with_y), 0) << with_y;
  const std::string with_dz =
      TextOf(runner, Gradients(loss, {residual, gamma}), {});
  EXPECT_EQ(CountOf("= BatchNormGradient(", with_dz), 2) << with_dz;
}

// A norm, a relu and a max pool whose windows overlap, with their gradients.
struct NormAndPool {
  explicit NormAndPool(GraphRunner& runner) {
    const Output x =
        runner.Input("x", RandomNormal(DType::kF32, Shape({2, 7, 5, 3}), 1));
    const Output gamma =
        runner.Input("gamma", RandomNormal(DType::kF32, Shape({3}), 2));
    const BatchNormOutputs norm =
        BatchNorm(x, gamma, gamma, {.has_relu = true});
    relu = norm.y;
    const Output y =
        MaxPool2d(norm.y, {.window = 3, .stride = 2, .padding = 1});
    outputs = Gradients(ReduceSum(Square(y)), {x, gamma});
    outputs.insert(outputs.end(), {y, norm.mean, norm.variance});
  }

  Output relu;
  std::vector<Output> outputs;
};

TEST(FuseNormsTest, AMaxPoolKeepsPlacesInTheResultsPlace) {
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    GraphRunner runner;
    const NormAndPool layer(runner);
    const auto fused = runner.Compile({.outputs = layer.outputs},
                                      {.passes = {.precision = precision}});
    const auto plain = runner.Compile(
        {.outputs = layer.outputs},
        {.passes = {.off = {"fuse_norms"}, .precision = precision}});
    const std::string text = fused->ToText();
    EXPECT_THAT(text, HasSubstr("pool_window=3")) << text;
    EXPECT_THAT(text, HasSubstr("image=[2,7,5,3]")) << text;
    EXPECT_THAT(text, Not(HasSubstr("= MaxPool2d("))) << text;
    fused->Run();
    plain->Run();
    for (size_t i = 0; i < layer.outputs.size(); ++i) {
      EXPECT_EQ(ToDoubles(fused->output(i)), ToDoubles(plain->output(i))) << i;
    }
  }
}

TEST(FuseNormsTest, AResultThatOthersNeedIsPooledByItself) {
  GraphRunner runner;
  const NormAndPool layer(runner);
  std::vector<Output> outputs = layer.outputs;
  outputs.push_back(layer.relu);
  EXPECT_EQ(TextOf(runner, outputs, {}),
            TextOf(runner, outputs, {.off = {"fuse_norms"}}));
}

// Backend cpu has no such kernels.
TEST(FuseNormsTest, ATargetWithoutThemKeepsThePlainForms) {
  GraphRunner runner("cpu");
  const TwoBlocks blocks(runner, 16);
  EXPECT_EQ(TextOf(runner, blocks.outputs, {}),
            TextOf(runner, blocks.outputs, {.off = {"fuse_norms"}}));
}

}  // namespace
}  // namespace replicant::graph
