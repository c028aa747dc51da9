#include "engine/graph/gradients.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::graph {
namespace {

using testing::GraphRunner;
using testing::MessageOf;
using testing::Values;
using V = std::vector<double>;

constexpr CallSite kSite{"model.cc", 12};
constexpr CallSite kOther{"layer.cc", 5};

TEST(GradientsTest, AddUpOverAllUses) {
  GraphRunner runner;
  const Output x = runner.Input("x", Values(DType::kF64, Shape({2}), {2, 3}));
  // x^2 + 5 x + x * x^2
  const Output square = Square(x);
  const Output y = Add(Add(square, Mul(x, 5.0)), Mul(x, square));
  const Output dx = Gradients(ReduceSum(y), {x})[0];
  EXPECT_EQ(runner.Eval(dx), (V{2 * 2 + 5 + 3 * 4, 2 * 3 + 5 + 3 * 9}));
}

TEST(GradientsTest, TakeAnIntermediateOutputAsFree) {
  GraphRunner runner;
  const Output x = runner.Input("x", Values(DType::kF64, Shape({}), {2}));
  const Output y = Square(x);
  const Output z = Square(y);
  const std::vector<Output> gradients = Gradients(z, {y, x});
  EXPECT_EQ(runner.Eval(gradients[0]), (V{8}));
  EXPECT_EQ(runner.Eval(gradients[1]), (V{32}));
}

TEST(GradientsTest, AdjointOpsAreLaidToTheLineOfTheirOp) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({}));
  const Output y = Tanh(x, kOther);
  const Output dx = Gradients(y, {x})[0];
  EXPECT_EQ(dx.producer().site.ToString(), "layer.cc:5");
  EXPECT_EQ(dx.producer().name, "gradients/Tanh/Mul");
}

TEST(GradientsTest, CanBeDifferentiatedAgain) {
  GraphRunner runner;
  const Output x = runner.Input("x", Values(DType::kF64, Shape({}), {2}));
  const Output first = Gradients(Mul(x, Square(x)), {x})[0];
  const Output second = Gradients(first, {x})[0];
  EXPECT_EQ(runner.Eval(second), (V{12}));
}

// Slices side by side give one concatenation; apart or overlapping, a sum.
TEST(GradientsTest, OfSlicesAreConcatenated) {
  struct Case {
    std::string name;
    std::vector<std::pair<int64_t, int64_t>> slices;  // begin and size
    std::string producer;
    V gradient;  // of the sum of square(slice), each slice's times its number
  };
  for (const Case& c : std::vector<Case>{
           {"all, in order",
            {{0, 2}, {2, 1}, {3, 1}},
            "Concat",
            {2, 4, 12, 24}},
           {"all, backwards", {{2, 2}, {0, 2}}, "Concat", {4, 8, 6, 8}},
           {"some", {{1, 1}, {2, 1}}, "Pad", {0, 4, 12, 0}},
           {"apart", {{0, 1}, {2, 2}}, "Add", {2, 0, 12, 16}},
           {"overlapping", {{0, 3}, {2, 2}}, "Add", {2, 4, 18, 16}},
           {"the same", {{1, 2}, {1, 2}}, "Add", {0, 12, 18, 0}}}) {
    SCOPED_TRACE(c.name);
    for (const bool is_column : {false, true}) {
      GraphRunner runner;
      const Shape shape = is_column ? Shape({1, 4}) : Shape({4, 1});
      const Output x =
          runner.Input("x", Values(DType::kF64, shape, {1, 2, 3, 4}));
      Output loss = runner.graph().Scalar(0.0, DType::kF64);
      double number = 0.0;
      for (const auto& [begin, size] : c.slices) {
        const Output slice = is_column ? Slice(x, {0, begin}, {1, size})
                                       : Slice(x, {begin, 0}, {size, 1});
        loss = Add(loss, Mul(ReduceSum(Square(slice)), ++number));
      }
      const Output dx = Gradients(loss, {x})[0];
      EXPECT_EQ(dx.producer().op->name, c.producer);
      EXPECT_EQ(runner.Eval(dx), c.gradient);
    }
  }
}

// Slices that differ on two axes are no concatenation.
TEST(GradientsTest, OfCornersAreAdded) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", Values(DType::kF64, Shape({2, 2}), {1, 2, 3, 4}));
  const Output loss = Add(ReduceSum(Square(Slice(x, {0, 0}, {1, 1}))),
                          ReduceSum(Square(Slice(x, {1, 1}, {1, 1}))));
  const Output dx = Gradients(loss, {x})[0];
  EXPECT_EQ(dx.producer().op->name, "Add");
  EXPECT_EQ(runner.Eval(dx), (V{2, 0, 0, 8}));
}

TEST(GradientsTest, RefuseALossThatIsNoScalar) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({2}));
  EXPECT_EQ(MessageOf([&] { Gradients(x, {x}, kSite); }),
            "model.cc:12: Gradients: want a floating scalar as loss, got 'x' "
            "of type f32[2]; hint: apply ReduceMean or ReduceSum");
}

TEST(GradientsTest, RefuseAnOpWithoutGradientOnTheWay) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({2}));
  const Output loss = ReduceSum(Sign(x, kOther));
  EXPECT_EQ(MessageOf([&] { Gradients(loss, {x}, kSite); }),
            "model.cc:12: Gradients: Sign 'Sign' (layer.cc:5) has no gradient: "
            "it is zero wherever it exists; hint: put StopGradient in front of "
            "it, if none should flow");
}

// Ops behind a StopGradient need not be differentiable.
TEST(GradientsTest, EndAtStopGradient) {
  GraphRunner runner;
  const Output x = runner.Input("x", Values(DType::kF64, Shape({}), {3}));
  const Output loss = Mul(x, Sign(StopGradient(x)));
  EXPECT_EQ(runner.Eval(Gradients(Mul(loss, Square(x)), {x})[0]), (V{27}));
}

TEST(GradientsTest, RefuseWhatTheLossDoesNotDependOn) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({}));
  const Output y = g.Input("y", DType::kF32, Shape({}));
  const Output n = g.Input("n", DType::kI64, Shape({}));
  EXPECT_EQ(MessageOf([&] { Gradients(Square(x), {y}, kSite); }),
            "model.cc:12: Gradients: no gradient flows from the loss 'Square' "
            "to 'y'");
  EXPECT_EQ(
      MessageOf([&] { Gradients(StopGradient(x), {x}, kSite); }),
      "model.cc:12: Gradients: no gradient flows from the loss 'StopGradient' "
      "to 'x'");
  EXPECT_EQ(MessageOf([&] { Gradients(Square(x), {n}, kSite); }),
            "model.cc:12: Gradients: want floating outputs to differentiate "
            "by, got 'n' of type i64[]");
}

}  // namespace
}  // namespace replicant::graph
