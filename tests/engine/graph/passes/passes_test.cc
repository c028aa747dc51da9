#include "engine/graph/passes/passes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/graph/gradients.h"
#include "engine/graph/ops/conv.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/image.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/graph/ops/state.h"
#include "engine/graph/print.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::graph {
namespace {

using testing::GraphRunner;
using testing::MessageOf;
using testing::RandomNormal;
using testing::RandomUniform;
using testing::ToDoubles;
using testing::Values;
using V = std::vector<double>;

// All passes but these.
std::vector<std::string> AllBut(const std::vector<std::string>& on) {
  std::vector<std::string> off;
  for (const Pass& pass : AllPasses()) {
    if (std::find(on.begin(), on.end(), pass.name) == on.end()) {
      off.emplace_back(pass.name);
    }
  }
  return off;
}

// The compiled program with only these passes (and prune).
std::string TextWith(GraphRunner& runner, const std::vector<Output>& outputs,
                     std::vector<std::string> on) {
  on.emplace_back("prune");
  return runner.Compile({.outputs = outputs}, {.passes = {AllBut(on)}})
      ->ToText();
}

TEST(PassesTest, FoldComputesWhatDependsOnConstantsOnly) {
  GraphRunner runner;
  Graph& g = runner.graph();
  const Output x = runner.Input("x", Values(DType::kF32, Shape({}), {2}));
  const Output three = Add(g.Scalar(1.0, DType::kF32), 2.0);
  const Output y = Mul(x, three);
  EXPECT_EQ(TextWith(runner, {y}, {"fold"}),
            "x = Input() -> f32[]\n"
            "Constant_1 = Constant() -> f32[]\n"
            "Mul = Mul(x, Constant_1) program={%2=Mul(%0,%1):f32} -> f32[]\n");
  EXPECT_EQ(runner.Eval(y), (V{6}));
}

TEST(PassesTest, CseKeepsOneOfEqualNodes) {
  GraphRunner runner;
  const Output x = runner.Input("x", Values(DType::kF32, Shape({}), {2}));
  const Output y = Mul(Tanh(x), Tanh(x));
  EXPECT_EQ(TextWith(runner, {y}, {"cse"}),
            "x = Input() -> f32[]\n"
            "Tanh = Tanh(x) program={%1=Tanh(%0):f32} -> f32[]\n"
            "Mul = Mul(Tanh, Tanh) program={%2=Mul(%0,%1):f32} -> f32[]\n");
}

TEST(PassesTest, CseDropsStopGradient) {
  GraphRunner runner;
  const Output x = runner.Input("x", Values(DType::kF32, Shape({}), {2}));
  EXPECT_EQ(TextWith(runner, {Square(StopGradient(x))}, {"cse"}),
            "x = Input() -> f32[]\n"
            "Square = Square(x) program={%1=Square(%0):f32} -> f32[]\n");
}

TEST(PassesTest, CseKeepsNodesThatDiffer) {
  GraphRunner runner;
  const Output x = runner.Input("x", Values(DType::kF32, Shape({2}), {2, 3}));
  const Output y = Sub(Mul(x, 2.0), Mul(x, 3.0));
  const auto plan =
      runner.Compile({.outputs = {y}}, {.passes = {AllBut({"cse", "prune"})}});
  EXPECT_EQ(plan->report().num_kernels, 3);
}

TEST(PassesTest, FuseElementwiseMakesOneProgramOfAChain) {
  GraphRunner runner;
  const Output x = runner.Input("x", Values(DType::kF32, Shape({2}), {1, 2}));
  const Output b = runner.Input("b", Values(DType::kF32, Shape({}), {3}));
  const Output y = Mul(Tanh(Add(x, b)), x);
  EXPECT_EQ(TextWith(runner, {y}, {"fuse_elementwise"}),
            "x = Input() -> f32[2]\n"
            "b = Input() -> f32[]\n"
            "Mul = FusedElementwise(x, b) program={%2=Add(%0,%1):f32 "
            "%3=Tanh(%2):f32 %4=Mul(%3,%0):f32} shape=[2] -> f32[2]\n");
}

TEST(PassesTest, FuseElementwiseLeavesWhatOthersNeed) {
  GraphRunner runner;
  const Output x = runner.Input("x", Values(DType::kF32, Shape({2}), {1, 2}));
  const Output h = Tanh(x);
  // h is fetched; the sum's input has another shape than its output
  const Output y = Square(h);
  const auto plan =
      runner.Compile({.outputs = {h, y, ReduceSum(Square(y))}},
                     {.passes = {AllBut({"fuse_elementwise", "prune"})}});
  EXPECT_EQ(plan->report().num_kernels, 4);
}

TEST(PassesTest, FuseEpilogueTakesBiasAndActivationIntoTheProduct) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", RandomNormal(DType::kF32, Shape({4, 3}), 1));
  const Output w =
      runner.Input("w", RandomNormal(DType::kF32, Shape({3, 2}), 2));
  const Output b = runner.Input("b", RandomNormal(DType::kF32, Shape({2}), 3));
  const Output y = Relu(Add(MatMul(x, w), b));
  EXPECT_EQ(TextWith(runner, {y}, {"fuse_epilogue"}),
            "x = Input() -> f32[4,3]\n"
            "w = Input() -> f32[3,2]\n"
            "b = Input() -> f32[2]\n"
            "MatMul = MatMul(x, w, b) activation={%1=Relu(%0):f32} "
            "transpose_a=false transpose_b=false -> f32[4,2]\n");
}

// In bf16 a sum with a bias of the product's size stays f32, and a bias may be
// bf16 where the product is not: fused, both would have another dtype.
TEST(PassesTest, FuseEpilogueKeepsEveryDtype) {
  GraphRunner runner;
  const auto normal = [&](const char* name, const Shape& shape) {
    return runner.Input(name, RandomNormal(DType::kF32, shape, 1));
  };
  const Output pixel = Conv2d(normal("x", Shape({1, 1, 1, 3})),
                              normal("w", Shape({2, 3, 1, 1})));
  const Output sum = Add(pixel, normal("b", Shape({2})));
  const Output row =
      MatMul(normal("v", Shape({1, 3})), normal("m", Shape({3, 4})));
  const Output bias = Reshape(
      MatMul(normal("p", Shape({2, 3})), normal("q", Shape({3, 2}))), {4});
  const std::vector<Output> outputs = {Relu(sum), Add(row, bias)};
  const auto text = [&](const std::vector<std::string>& on) {
    return runner
        .Compile({.outputs = outputs},
                 {.passes = {.off = AllBut(on), .precision = Precision::kBF16}})
        ->ToText();
  };
  EXPECT_EQ(text({"fuse_epilogue", "prune"}), text({"prune"}));
}

// A first layer with its gradient, on moved pixels.
struct FirstLayer {
  explicit FirstLayer(GraphRunner& runner) {
    const Output x = runner.Input(
        "x", RandomUniform(DType::kU8, Shape({2, 6, 5, 3}), 0, 255, 1));
    const Output offsets = runner.Input(
        "offsets", Values(DType::kI32, Shape({2, 2}), {1, -2, 0, 7}));
    const Output w =
        runner.Input("w", RandomNormal(DType::kF32, Shape({2, 3, 3, 3}), 2));
    const Output b =
        runner.Input("b", RandomNormal(DType::kF32, Shape({2}), 3));
    image = NormalizePixels(RandomShift(x, offsets), DType::kF32);
    y = Relu(Add(Conv2d(image, w, {.stride = 1, .padding = 1}), b));
    const std::vector<Output> gradients =
        Gradients(ReduceSum(Square(y)), {w, b});
    outputs = {y, gradients[0], gradients[1]};
  }

  Output image;
  Output y;
  std::vector<Output> outputs;
};

TEST(PassesTest, FusePixelsReadsBytesInTheConvolution) {
  GraphRunner runner;
  const FirstLayer layer(runner);
  EXPECT_EQ(TextWith(runner, {layer.y}, {"fuse_epilogue", "fuse_pixels"}),
            "x = Input() -> u8[2,6,5,3]\n"
            "offsets = Input() -> i32[2,2]\n"
            "w = Input() -> f32[2,3,3,3]\n"
            "b = Input() -> f32[2]\n"
            "Conv2d = PixelConv2d(x, w, b, offsets) "
            "activation={%1=Relu(%0):f32} is_shifted=true offset=-0.5 "
            "padding=1 scale=0.00392156862745098 stride=1 -> f32[2,6,5,2]\n");
}

TEST(PassesTest, FusePixelsChangesNoBit) {
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    GraphRunner runner;
    const FirstLayer layer(runner);
    const auto plan = runner.Compile({.outputs = layer.outputs},
                                     {.passes = {.precision = precision}});
    const auto plain = runner.Compile(
        {.outputs = layer.outputs},
        {.passes = {.off = {"fuse_pixels"}, .precision = precision}});
    const std::string text = plan->ToText();
    EXPECT_NE(text.find(" = PixelConv2d("), std::string::npos) << text;
    EXPECT_NE(text.find(" = PixelConv2dWeightGradient("), std::string::npos)
        << text;
    EXPECT_EQ(text.find("RandomShift"), std::string::npos) << text;
    plan->Run();
    plain->Run();
    for (size_t i = 0; i < layer.outputs.size(); ++i) {
      EXPECT_EQ(ToDoubles(plan->output(i)), ToDoubles(plain->output(i)));
    }
  }
}

// The image is computed for who else wants it, and read as bytes nevertheless.
TEST(PassesTest, FusePixelsLeavesWhatOthersNeed) {
  GraphRunner runner;
  const FirstLayer layer(runner);
  const auto plan = runner.Compile({.outputs = {layer.image, layer.y}});
  const std::string text = plan->ToText();
  EXPECT_NE(text.find("PixelConv2d"), std::string::npos) << text;
  EXPECT_NE(text.find("RandomShift"), std::string::npos) << text;
}

// A training step with everything in it that passes touch. Each pass alone,
// and all of them, give the same bits as none.
TEST(PassesTest, NoPassChangesABit) {
  const auto run = [](const std::vector<std::string>& off) {
    GraphRunner runner;
    Graph& g = runner.graph();
    const auto normal = [](RandomStream& random, MutableTensorView view) {
      for (float& x : view.Span<float>()) {
        x = static_cast<float>(random.Normal());
      }
    };
    const VariableId w = g.AddVariable(
        {.name = "w", .shape = Shape({5, 3}), .initializer = normal});
    const VariableId b = g.AddVariable(
        {.name = "b", .shape = Shape({5}), .initializer = normal});
    const Output x =
        runner.Input("x", RandomNormal(DType::kF32, Shape({4, 3}), 1));
    const Output h =
        Elu(Add(MatMul(x, g.Read(w), {.transpose_b = true}), g.Read(b)));
    const Output loss = ReduceMean(Square(
        Sub(Mul(Sigmoid(h), Tanh(h)),
            Mul(g.Scalar(0.5, DType::kF32), g.Scalar(0.25, DType::kF32)))));
    const std::vector<Output> gradients =
        Gradients(loss, {g.Read(w), g.Read(b)});
    const Output dw =
        Assign(g, w, Sub(Mul(g.Read(w), 0.99), Mul(gradients[0], 0.1)));
    const Output db = Assign(g, b, Sub(g.Read(b), Mul(gradients[1], 0.1)));
    const auto plan = runner.Compile(
        {.outputs = {loss, Tanh(dw)}, .updates = {dw, db}}, {.passes = {off}});
    V result;
    for (int step = 0; step < 3; ++step) {
      plan->Run();
      for (size_t i = 0; i < plan->num_outputs(); ++i) {
        const V values = ToDoubles(plan->output(i));
        result.insert(result.end(), values.begin(), values.end());
      }
    }
    return result;
  };
  const V none = run(AllBut({}));
  EXPECT_EQ(run({}), none);
  for (const Pass& pass : AllPasses()) {
    SCOPED_TRACE(pass.name);
    EXPECT_EQ(run(AllBut({std::string(pass.name)})), none);
    EXPECT_EQ(run({std::string(pass.name)}), none);
  }
}

// h reads the old version, the product needs the new one: were h computed
// together with the product, it would come too late.
TEST(PassesTest, FusionDoesNotMoveAReadBehindTheUpdate) {
  GraphRunner runner;
  Graph& g = runner.graph();
  const VariableId v = g.AddVariable({.name = "v", .shape = Shape({2})});
  const Output h = Cos(Tanh(g.Read(v)));
  const Output updated = Assign(g, v, Add(g.Read(v), 1.0));
  EXPECT_EQ(runner.Eval(Mul(h, Mul(updated, 3.0))), (V{3, 3}));
}

// A target whose processor multiplies bf16, or does not.
class Bf16Target : public TargetInfo {
 public:
  explicit Bf16Target(bool multiplies) : multiplies_(multiplies) {}
  std::string_view name() const override { return "bf16"; }
  std::string WhyUnsupported(const Graph& /*graph*/,
                             const Node& /*node*/) const override {
    return {};
  }
  bool MultipliesBf16() const override { return multiplies_; }

 private:
  bool multiplies_;
};

TEST(PassesTest, PrecisionAutoIsBf16WhereTheTargetMultipliesIt) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({2, 2}));
  const Output y = MatMul(x, x);
  const auto text = [&](bool multiplies, Precision precision) {
    return PrintText(*RunPasses(ExtractProgram(g, {y}, {}),
                                Bf16Target(multiplies),
                                {.precision = precision})
                          .graph);
  };
  const std::string f32 = text(true, Precision::kF32);
  const std::string bf16 = text(true, Precision::kBF16);
  EXPECT_NE(f32, bf16);
  EXPECT_EQ(text(true, Precision::kAuto), bf16);
  EXPECT_EQ(text(false, Precision::kAuto), f32);
  EXPECT_EQ(text(false, Precision::kBF16), bf16);
}

TEST(PassesTest, RefuseToSwitchOffAPassThatThereIsNot) {
  GraphRunner runner;
  const Output x = runner.Input("x", Values(DType::kF32, Shape({}), {2}));
  EXPECT_EQ(MessageOf([&] {
              runner.Compile({.outputs = {x}}, {.passes = {{"fusion"}}});
            }),
            "RunPasses: no pass 'fusion'; allowed: fold, cse, fuse_epilogue, "
            "fuse_pixels, fuse_norms, fuse_elementwise, prune");
}

}  // namespace
}  // namespace replicant::graph
