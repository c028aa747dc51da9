#include "engine/graph/ops/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::graph {
namespace {

using testing::GraphRunner;
using testing::kGradientTolerance;
using testing::MessageOf;
using testing::RandomUniform;
using testing::Values;

constexpr CallSite kSite{"model.cc", 12};
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <typename Case>
std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

struct UnaryCase {
  std::string name;
  std::function<Output(Output)> op;
  std::function<double(double)> model;
  // where the gradient is checked: away from kinks and poles
  double low = -2.0;
  double high = 2.0;
};

std::vector<UnaryCase> UnaryCases() {
  return {
      {"Exp", [](Output x) { return Exp(x); },
       [](double x) { return std::exp(x); }},
      {"Log", [](Output x) { return Log(x); },
       [](double x) { return std::log(x); }, 0.5, 3.0},
      {"Sqrt", [](Output x) { return Sqrt(x); },
       [](double x) { return std::sqrt(x); }, 0.5, 3.0},
      {"Sin", [](Output x) { return Sin(x); },
       [](double x) { return std::sin(x); }},
      {"Cos", [](Output x) { return Cos(x); },
       [](double x) { return std::cos(x); }},
      {"Tanh", [](Output x) { return Tanh(x); },
       [](double x) { return std::tanh(x); }},
      {"Sigmoid", [](Output x) { return Sigmoid(x); },
       [](double x) { return 1.0 / (1.0 + std::exp(-x)); }},
      {"Softplus", [](Output x) { return Softplus(x); },
       [](double x) { return std::log(1.0 + std::exp(x)); }},
      {"ReluPositive", [](Output x) { return Relu(x); },
       [](double x) { return x; }, 0.1, 2.0},
      {"ReluNegative", [](Output x) { return Relu(x); },
       [](double /*x*/) { return 0.0; }, -2.0, -0.1},
      {"LeakyReluPositive", [](Output x) { return LeakyRelu(x, 0.1); },
       [](double x) { return x; }, 0.1, 2.0},
      {"LeakyReluNegative", [](Output x) { return LeakyRelu(x, 0.1); },
       [](double x) { return 0.1 * x; }, -2.0, -0.1},
      {"EluPositive", [](Output x) { return Elu(x, 0.7); },
       [](double x) { return x; }, 0.1, 2.0},
      {"EluNegative", [](Output x) { return Elu(x, 0.7); },
       [](double x) { return 0.7 * (std::exp(x) - 1.0); }, -2.0, -0.1},
      {"Neg", [](Output x) { return Neg(x); }, [](double x) { return -x; }},
      {"AbsNegative", [](Output x) { return Abs(x); },
       [](double x) { return -x; }, -2.0, -0.1},
      {"AbsPositive", [](Output x) { return Abs(x); },
       [](double x) { return x; }, 0.1, 2.0},
      {"Square", [](Output x) { return Square(x); },
       [](double x) { return x * x; }},
      {"ClipInside", [](Output x) { return Clip(x, -1.0, 1.0); },
       [](double x) { return x; }, -0.9, 0.9},
      {"ClipOutside", [](Output x) { return Clip(x, -1.0, 1.0); },
       [](double /*x*/) { return 1.0; }, 1.1, 2.0},
      {"Affine", [](Output x) { return Affine(x, -3.0, 0.5); },
       [](double x) { return -3.0 * x + 0.5; }},
      {"AddNumber", [](Output x) { return Add(x, 2.0); },
       [](double x) { return x + 2.0; }},
      {"Broadcast",
       [](Output x) {
         return BroadcastTo(x, Shape({2, 3, 4}));
       },
       nullptr},
  };
}

class UnaryTest : public ::testing::TestWithParam<UnaryCase> {};

TEST_P(UnaryTest, ValueIsThatOfTheFormula) {
  const UnaryCase& c = GetParam();
  if (!c.model) GTEST_SKIP() << "not element by element";
  GraphRunner runner;
  const HostTensor values =
      RandomUniform(DType::kF64, Shape({3, 4}), c.low, c.high, /*seed=*/1);
  const std::vector<double> x = testing::ToDoubles(values.view());
  const Output input = runner.Input("x", HostTensor::Clone(values.view()));
  const std::vector<double> y = runner.Eval(c.op(input));
  for (size_t i = 0; i < x.size(); ++i) {
    // a few roundings of numbers of order 1
    EXPECT_NEAR(y[i], c.model(x[i]), 1e-14);
  }
}

TEST_P(UnaryTest, GradientMatchesCentralDifferences) {
  const UnaryCase& c = GetParam();
  GraphRunner runner;
  const Output x = runner.Input(
      "x", RandomUniform(DType::kF64, Shape({3, 4}), c.low, c.high, 2));
  EXPECT_LT(runner.MaxGradientError(c.op(x), {x}), kGradientTolerance);
}

INSTANTIATE_TEST_SUITE_P(Ops, UnaryTest, ::testing::ValuesIn(UnaryCases()),
                         &NameOf<UnaryCase>);

struct BinaryCase {
  std::string name;
  Output (*op)(Output, Output, CallSite);
  double (*model)(double, double);
};

class BinaryTest : public ::testing::TestWithParam<BinaryCase> {};

// Shapes that broadcast in both directions at once: [3,1,2] with [4,1].
TEST_P(BinaryTest, BroadcastsAndDifferentiatesBothInputs) {
  GraphRunner runner;
  const HostTensor a =
      RandomUniform(DType::kF64, Shape({3, 1, 2}), 0.5, 2.0, /*seed=*/3);
  const HostTensor b =
      RandomUniform(DType::kF64, Shape({4, 1}), 2.1, 4.0, /*seed=*/4);
  const Output x = runner.Input("a", HostTensor::Clone(a.view()));
  const Output y = runner.Input("b", HostTensor::Clone(b.view()));
  const Output z = GetParam().op(x, y, kSite);
  ASSERT_EQ(z.shape(), Shape({3, 4, 2}));
  const std::vector<double> values = runner.Eval(z);
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 4; ++j) {
      for (size_t k = 0; k < 2; ++k) {
        EXPECT_EQ(
            values[(i * 4 + j) * 2 + k],
            GetParam().model(a.Span<double>()[i * 2 + k], b.Span<double>()[j]));
      }
    }
  }
  EXPECT_LT(runner.MaxGradientError(z, {x, y}), kGradientTolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Ops, BinaryTest,
    ::testing::Values(
        BinaryCase{"Add", &Add, [](double a, double b) { return a + b; }},
        BinaryCase{"Sub", &Sub, [](double a, double b) { return a - b; }},
        BinaryCase{"Mul", &Mul, [](double a, double b) { return a * b; }},
        BinaryCase{"Div", &Div, [](double a, double b) { return a / b; }},
        BinaryCase{"Minimum", &Minimum,
                   [](double a, double b) { return std::fmin(a, b); }},
        BinaryCase{"Maximum", &Maximum,
                   [](double a, double b) { return std::fmax(a, b); }}),
    &NameOf<BinaryCase>);

TEST(ElementwiseTest, WhereTakesOneBranchInValueAndGradient) {
  GraphRunner runner;
  const Output c =
      runner.Input("c", Values(DType::kBool, Shape({4}), {1, 0, 1, 0}));
  const Output a =
      runner.Input("a", Values(DType::kF64, Shape({4}), {1, 2, 3, 4}));
  const Output b = runner.Input("b", Values(DType::kF64, Shape({}), {-1}));
  const Output y = Where(c, Square(a), b);
  EXPECT_EQ(runner.Eval(y), (std::vector<double>{1, -1, 9, -1}));
  EXPECT_LT(runner.MaxGradientError(y, {a, b}), kGradientTolerance);
}

TEST(ElementwiseTest, ComparisonsGiveBool) {
  GraphRunner runner;
  const Output a =
      runner.Input("a", Values(DType::kI32, Shape({3}), {1, 2, 3}));
  const Output b = runner.Input("b", Values(DType::kI32, Shape({}), {2}));
  EXPECT_EQ(Less(a, b).dtype(), DType::kBool);
  using V = std::vector<double>;
  EXPECT_EQ(runner.Eval(Less(a, b)), (V{1, 0, 0}));
  EXPECT_EQ(runner.Eval(LessEqual(a, b)), (V{1, 1, 0}));
  EXPECT_EQ(runner.Eval(Greater(a, b)), (V{0, 0, 1}));
  EXPECT_EQ(runner.Eval(GreaterEqual(a, b)), (V{0, 1, 1}));
  EXPECT_EQ(runner.Eval(Equal(a, b)), (V{0, 1, 0}));
  EXPECT_EQ(runner.Eval(NotEqual(a, b)), (V{1, 0, 1}));
  const Output less = Less(a, b);
  const Output equal = Equal(a, b);
  EXPECT_EQ(runner.Eval(Or(less, equal)), (V{1, 1, 0}));
  EXPECT_EQ(runner.Eval(And(less, equal)), (V{0, 0, 0}));
  EXPECT_EQ(runner.Eval(Not(less)), (V{0, 1, 1}));
}

TEST(ElementwiseTest, IntegersAreTruncatedAndSaturated) {
  GraphRunner runner;
  const Output a =
      runner.Input("a", Values(DType::kI64, Shape({4}), {7, -7, 5, 0}));
  const Output b =
      runner.Input("b", Values(DType::kI64, Shape({4}), {2, 2, 0, 5}));
  using V = std::vector<double>;
  EXPECT_EQ(runner.Eval(Div(a, b)), (V{3, -3, 0x1p63, 0}));
  EXPECT_EQ(runner.Eval(Modulo(a, b)), (V{1, 1, 0, 0}));
  EXPECT_EQ(runner.Eval(Cast(a, DType::kU8)), (V{7, 0, 5, 0}));
}

TEST(ElementwiseTest, NanIsNotLostInMinimumMaximumClipRelu) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", Values(DType::kF32, Shape({2}), {kNan, 1}));
  const Output y =
      runner.Input("y", Values(DType::kF32, Shape({2}), {0, kNan}));
  for (const Output& z : {Minimum(x, y), Maximum(x, y)}) {
    const std::vector<double> values = runner.Eval(z);
    EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[1]));
  }
  EXPECT_TRUE(std::isnan(runner.Eval(Clip(x, -1.0, 1.0))[0]));
  EXPECT_TRUE(std::isnan(runner.Eval(Relu(x))[0]));
}

TEST(ElementwiseTest, LargeArgumentsDoNotOverflow) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", Values(DType::kF32, Shape({2}), {-1000, 1000}));
  using V = std::vector<double>;
  EXPECT_EQ(runner.Eval(Sigmoid(x)), (V{0, 1}));
  EXPECT_EQ(runner.Eval(Softplus(x)), (V{0, 1000}));
}

TEST(ElementwiseTest, BFloat16IsRoundedOnce) {
  GraphRunner runner;
  const Output x = runner.Input("x", Values(DType::kBF16, Shape({1}), {1.0}));
  // 1 + 2^-8 lies halfway between two bfloat16 and goes to the even one
  EXPECT_EQ(runner.Eval(Add(x, 0x1p-8))[0], 1.0);
  EXPECT_EQ(runner.Eval(Add(x, 0x1.8p-8))[0], 1.0 + 0x1p-7);
}

TEST(ElementwiseTest, RefusesShapesAndTypesThatDoNotFit) {
  Graph g;
  const Output f34 = g.Input("f34", DType::kF32, Shape({3, 4}));
  const Output f5 = g.Input("f5", DType::kF32, Shape({5}));
  const Output i34 = g.Input("i34", DType::kI64, Shape({3, 4}));
  EXPECT_EQ(MessageOf([&] { Add(f34, f5, kSite); }),
            "model.cc:12: Add 'Add': shapes do not broadcast: f32[3,4], f32[5];"
            " counted from the last, dimensions must be equal or one of them "
            "1");
  EXPECT_EQ(MessageOf([&] { Mul(f34, i34, kSite); }),
            "model.cc:12: Mul 'Mul': want inputs of one dtype, got f32[3,4], "
            "i64[3,4]; hint: Cast one of them");
  EXPECT_EQ(MessageOf([&] { Tanh(i34, kSite); }),
            "model.cc:12: Tanh 'Tanh': want a floating dtype (f32, f64, bf16), "
            "got i64[3,4]");
  EXPECT_EQ(MessageOf([&] { Not(f34, kSite); }),
            "model.cc:12: Not 'Not': want bool, got f32[3,4]");
  EXPECT_EQ(MessageOf([&] { Neg(Less(f5, f5), kSite); }),
            "model.cc:12: Neg 'Neg': want a numeric dtype (any but bool), got "
            "bool[5]");
  EXPECT_EQ(MessageOf([&] { Where(f5, f5, f5, kSite); }),
            "model.cc:12: Where 'Where': want a bool condition, got f32[5]");
  EXPECT_EQ(MessageOf([&] {
              BroadcastTo(f5, Shape({3, 4}), kSite);
            }),
            "model.cc:12: Copy 'BroadcastTo': f32[5] does not broadcast to "
            "[3,4]");
  EXPECT_EQ(MessageOf([&] { Clip(f5, 2.0, 1.0, kSite); }),
            "model.cc:12: Clip: want low <= high, got 2 and 1");
  EXPECT_EQ(MessageOf([&] { Elu(f5, -1.0, kSite); }),
            "model.cc:12: Elu: want alpha >= 0, got -1");
  EXPECT_EQ(MessageOf([&] { LeakyRelu(f5, -1.0, kSite); }),
            "model.cc:12: LeakyRelu: want slope >= 0, got -1");
}

}  // namespace
}  // namespace replicant::graph
