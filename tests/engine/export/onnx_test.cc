#include "engine/export/onnx.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/graph/ops/conv.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/image.h"
#include "engine/graph/ops/indexing.h"
#include "engine/graph/ops/losses.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/norm.h"
#include "engine/graph/ops/pool.h"
#include "engine/graph/ops/random.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"
#include "tests/support/onnx_runtime.h"

namespace replicant::exporting {
namespace {

using graph::CallSite;
using graph::Graph;
using graph::Output;
using testing::GraphRunner;
using testing::MessageOf;
using testing::OnnxResult;
using testing::RunOnnx;
using testing::ToDoubles;

constexpr CallSite kSite{"policy.cc", 7};

// A graph with inputs, each with a value.
class OnnxTest : public ::testing::Test {
 protected:
  Output Normal(const std::string& name, const Shape& shape, uint64_t seed) {
    return Input(name, testing::RandomNormal(DType::kF32, shape, seed));
  }
  Output Input(const std::string& name, HostTensor value) {
    values_.emplace(name, HostTensor::Clone(value.view()));
    return runner_.Input(name, std::move(value));
  }
  std::string Model(
      const std::vector<std::pair<std::string, Output>>& outputs) {
    return ToOnnx(
        runner_.graph(),
        {.outputs = outputs, .value_of = [this](const std::string& name) {
           return runner_.store().Get(name);
         }});
  }
  // All results equal our own reference.
  void ExpectSame(const std::vector<std::pair<std::string, Output>>& outputs) {
    const OnnxResult result = RunOnnx(Model(outputs), values_);
    for (const auto& [name, output] : outputs) {
      const HostTensor& got = result.outputs.at(name);
      const HostTensor want = runner_.EvalTensor(output);
      ASSERT_EQ(got.dtype(), want.dtype()) << name;
      ASSERT_EQ(got.shape(), want.shape()) << name;
      const auto a = ToDoubles(got.view());
      const auto b = ToDoubles(want.view());
      double largest = 1.0;
      for (const double x : b) largest = std::max(largest, std::abs(x));
      for (size_t i = 0; i < a.size(); ++i) {
        // sums of at most some hundred products
        ASSERT_NEAR(a[i], b[i], 1e-5 * largest) << name << " " << i;
      }
    }
  }

  GraphRunner runner_;
  std::map<std::string, HostTensor> values_;
};

TEST_F(OnnxTest, ElementwiseOpsAreThoseOfOnnx) {
  const Output a = Normal("a", Shape({4, 5}), 1);
  const Output b = Normal("b", Shape({5}), 2);
  const Output positive = graph::Add(graph::Abs(a), 0.5);
  const Output i =
      Input("i", testing::Values(DType::kI32, Shape({4}), {7, -7, 3, 0}));
  const Output j =
      Input("j", testing::Values(DType::kI32, Shape({4}), {2, 2, -2, 5}));
  const Output condition = graph::Less(a, b);
  ExpectSame({{"neg", graph::Neg(a)},
              {"abs", graph::Abs(a)},
              {"sign", graph::Sign(a)},
              {"exp", graph::Exp(a)},
              {"log", graph::Log(positive)},
              {"sqrt", graph::Sqrt(positive)},
              {"square", graph::Square(a)},
              {"sin", graph::Sin(a)},
              {"cos", graph::Cos(a)},
              {"tanh", graph::Tanh(a)},
              {"sigmoid", graph::Sigmoid(a)},
              {"softplus", graph::Softplus(a)},
              {"relu", graph::Relu(a)},
              {"leaky", graph::LeakyRelu(a, 0.1)},
              {"elu", graph::Elu(a, 0.7)},
              {"clip", graph::Clip(a, -0.5, 0.25)},
              {"affine", graph::Affine(a, 2.0, -1.0)},
              {"add", graph::Add(a, b)},
              {"sub", graph::Sub(a, b)},
              {"mul", graph::Mul(a, b)},
              {"div", graph::Div(a, positive)},
              {"integers", graph::Div(i, j)},
              {"minimum", graph::Minimum(a, b)},
              {"maximum", graph::Maximum(a, b)},
              {"less_equal", graph::LessEqual(i, j)},
              {"greater", graph::Greater(a, b)},
              {"greater_equal", graph::GreaterEqual(i, j)},
              {"equal", graph::Equal(i, j)},
              {"not_equal", graph::NotEqual(i, j)},
              {"and", graph::And(condition, graph::Greater(a, positive))},
              {"or", graph::Or(condition, graph::Less(positive, b))},
              {"not", graph::Not(condition)},
              {"where", graph::Where(condition, a, graph::Neg(a))},
              {"cast", graph::Cast(i, DType::kF32)},
              {"broadcast", graph::BroadcastTo(b, Shape({3, 5}))}});
}

TEST_F(OnnxTest, LayersAreThoseOfOnnx) {
  HostTensor frames(DType::kU8, Shape({2, 9, 8, 3}));
  for (size_t k = 0; uint8_t & x : frames.MutableSpan<uint8_t>()) {
    x = static_cast<uint8_t>(k++ * 37);
  }
  const Output image = graph::NormalizePixels(
      Input("frames", std::move(frames)), DType::kF32, 1 / 255.0, -0.5);
  const Output w = Normal("w", Shape({4, 3, 3, 3}), 3);
  const Output conv = graph::Conv2d(image, w, {.stride = 2, .padding = 1});
  const Output x = Normal("x", Shape({6, 5}), 4);
  const Output y = Normal("y", Shape({6, 4}), 5);
  const Output gamma = Normal("gamma", Shape({5}), 6);
  const Output beta = Normal("beta", Shape({5}), 7);
  const Output ids =
      Input("ids", testing::Values(DType::kI32, Shape({3}), {5, 0, 2}));
  ExpectSame(
      {{"conv", conv},
       {"max_pool",
        graph::MaxPool2d(conv, {.window = 3, .stride = 2, .padding = 1})},
       {"average_pool",
        graph::AveragePool2d(conv, {.window = 3, .stride = 2, .padding = 1})},
       {"global", graph::GlobalAveragePool(conv)},
       {"upsample", graph::UpsampleNearest2d(conv, 2)},
       {"batch_norm", graph::BatchNormInference(
                          x, gamma, beta, graph::ReduceMean(x, {.axes = {0}}),
                          graph::ReduceMean(graph::Square(x), {.axes = {0}}))},
       {"layer_norm", graph::LayerNorm(x, gamma, beta)},
       {"matmul", graph::MatMul(x, y, {.transpose_a = true})},
       {"matmul_b", graph::MatMul(x, x, {.transpose_b = true})},
       {"concat", graph::Concat({x, y}, 1)},
       {"slice", graph::Slice(x, {1, 2}, {3, 2})},
       {"pad", graph::Pad(x, {1, 0}, {0, 2}, 0.25)},
       {"reshape", graph::Reshape(x, {3, -1})},
       {"transpose", graph::Transpose(x, {1, 0})},
       {"gather", graph::Embedding(x, ids)},
       {"softmax", graph::Softmax(x)},
       {"log_softmax", graph::LogSoftmax(x)},
       {"argmax", graph::ArgMax(x)},
       {"sum", graph::ReduceSum(x)},
       {"max", graph::ReduceMax(x, {.axes = {-1}, .keep_dims = true})},
       {"min", graph::ReduceMin(x, {.axes = {0}})},
       {"stop", graph::StopGradient(x)}});
}

// A model made of seven rows takes three, and its variables are constants.
TEST_F(OnnxTest, ABatchHasAnyNumberOfRows) {
  Graph& graph = runner_.graph();
  const Output x = Normal("x", Shape({7, 2, 3}), 1);
  const Output flat = graph::Reshape(x, {7, 6});
  const Output w =
      graph.Read(graph.AddVariable({.name = "weight", .shape = Shape({6, 4})}));
  const Output y = graph::Slice(graph::MatMul(flat, w), {0, 1}, {7, 2});
  runner_.store().Declare(graph);
  runner_.store().Set(
      "weight", testing::RandomNormal(DType::kF32, Shape({6, 4}), 2).view());
  const HostTensor want = runner_.EvalTensor(y);
  const std::string model = ToOnnx(
      graph,
      {.outputs = {{"y", y}},
       .value_of =
           [&](const std::string& name) { return runner_.store().Get(name); },
       .batch_size = 7,
       .metadata = {{"task", "cartpole-swingup"}}});
  std::map<std::string, HostTensor> inputs;
  HostTensor three(DType::kF32, Shape({3, 2, 3}));
  std::ranges::copy(values_.at("x").Span<float>().first(18),
                    three.MutableSpan<float>().begin());
  inputs.emplace("x", std::move(three));
  const OnnxResult result = RunOnnx(model, inputs);
  EXPECT_EQ(result.metadata, "task=cartpole-swingup\n");
  const HostTensor& got = result.outputs.at("y");
  ASSERT_EQ(got.shape(), Shape({3, 2}));
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(got.Span<float>()[i], want.Span<float>()[i], 1e-5);
  }
}

TEST_F(OnnxTest, OpsWithoutAFormAreNamedWithTheirLine) {
  Graph& graph = runner_.graph();
  const Output step = graph.Input("step", DType::kI64, Shape({}));
  const Output noise = graph::RandomNormal({.name = "noise", .step = step},
                                           DType::kF32, Shape({3}), kSite);
  const std::string message = MessageOf<InvalidArgument>([&] {
    Model({{"noise", noise}});
  });
  EXPECT_TRUE(message.starts_with(
      "policy.cc:7: RandomNormal 'noise' has no form in ONNX; allowed: "
      "elementwise ops, ArgMax, AveragePool2d, Concat, "))
      << message;
}

// Would catch a model that is right for the exported number of rows alone.
TEST_F(OnnxTest, OpsThatMixTheRowsOfABatchAreRefused) {
  Graph& graph = runner_.graph();
  const Output x = graph.Input("x", DType::kF32, Shape({7, 2}));
  const Output v = graph.Input("v", DType::kF32, Shape({7}));
  const Output one_row = graph.Input("one_row", DType::kF32, Shape({1, 2}));
  const Output ids = graph.Input("ids", DType::kI64, Shape({3}));
  const std::vector<std::pair<std::string, Output>> outputs = {
      {"ReduceMean", graph::ReduceMean(x, {.axes = {0}}, kSite)},
      {"MatMul", graph::MatMul(x, x, {.transpose_b = true}, kSite)},
      {"MatMul", graph::MatMul(x, x, {.transpose_a = true}, kSite)},
      {"Softmax", graph::Softmax(v, kSite)},
      {"LogSoftmax", graph::LogSoftmax(v, kSite)},
      {"ArgMax", graph::ArgMax(v, kSite)},
      {"Gather", graph::Gather(x, ids, kSite)},
      {"Concat", graph::Concat({one_row, x}, 0, kSite)},
      {"Copy", graph::BroadcastTo(v, Shape({3, 7}), kSite)},
  };
  for (const auto& [op, output] : outputs) {
    const std::string message = MessageOf<InvalidArgument>([&] {
      ToOnnx(graph, {.outputs = {{"y", output}}, .batch_size = 7});
    });
    EXPECT_TRUE(message.starts_with("policy.cc:7: " + op + " '")) << message;
    EXPECT_TRUE(
        message.ends_with(" mixes the rows of a batch, whose number is open"))
        << op << ": " << message;
  }
}

}  // namespace
}  // namespace replicant::exporting
