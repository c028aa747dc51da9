#include "engine/graph/ops/shape_ops.h"

#include <gtest/gtest.h>

#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::graph {
namespace {

using testing::GraphRunner;
using testing::kGradientTolerance;
using testing::MessageOf;
using testing::RandomNormal;
using testing::Values;
using V = std::vector<double>;

constexpr CallSite kSite{"model.cc", 12};

TEST(ShapeOpsTest, MoveElementsOfEveryDType) {
  for (const DType dtype : kAllDTypes) {
    GraphRunner runner;
    // 0 and 1 are numbers of every dtype
    const Output x =
        runner.Input("x", Values(dtype, Shape({2, 3}), {1, 0, 0, 1, 1, 0}));
    EXPECT_EQ(runner.Eval(Reshape(x, {3, -1})), (V{1, 0, 0, 1, 1, 0}));
    EXPECT_EQ(Reshape(x, {3, -1}).shape(), Shape({3, 2}));
    EXPECT_EQ(runner.Eval(Transpose(x, {1, 0})), (V{1, 1, 0, 1, 0, 0}));
    EXPECT_EQ(runner.Eval(Slice(x, {0, 1}, {2, 2})), (V{0, 0, 1, 0}));
    EXPECT_EQ(runner.Eval(Pad(x, {0, 1}, {0, 0}, 1.0)),
              (V{1, 1, 0, 0, 1, 1, 1, 0}));
    EXPECT_EQ(runner.Eval(Concat({x, x}, 1)),
              (V{1, 0, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0}));
  }
}

TEST(ShapeOpsTest, GradientsMatchCentralDifferences) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", RandomNormal(DType::kF64, Shape({2, 3, 4}), 1));
  const Output y =
      runner.Input("y", RandomNormal(DType::kF64, Shape({2, 1, 4}), 2));
  for (const Output& z :
       {Reshape(x, {6, 4}), Transpose(x, {2, 0, 1}),
        Slice(x, {1, 0, 1}, {1, 2, 3}), Pad(x, {1, 0, 2}, {0, 3, 1}, 5.0),
        Concat({x, y, x}, 1), Identity(x)}) {
    EXPECT_LT(runner.MaxGradientError(z, {x}), kGradientTolerance);
  }
  EXPECT_LT(runner.MaxGradientError(Concat({y, x}, -2), {x, y}),
            kGradientTolerance);
}

TEST(ShapeOpsTest, StopGradientLetsNothingThrough) {
  GraphRunner runner;
  const Output x = runner.Input("x", Values(DType::kF64, Shape({2}), {3, 4}));
  const Output loss = ReduceSum(Mul(x, StopGradient(x)));
  EXPECT_EQ(runner.Eval(Gradients(loss, {x})[0]), (V{3, 4}));
}

TEST(ShapeOpsTest, RefuseArgumentsThatDoNotFit) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({2, 3}));
  const Output y = g.Input("y", DType::kF32, Shape({3, 3}));
  const std::string at = "model.cc:12: ";
  EXPECT_EQ(MessageOf([&] {
              Reshape(x, {4, -1}, kSite);
            }),
            at + "Reshape 'Reshape': f32[2,3] of 6 elements cannot become "
                 "[4,-1]");
  EXPECT_EQ(MessageOf([&] { Reshape(x, {7}, kSite); }),
            at + "Reshape 'Reshape': f32[2,3] of 6 elements cannot become [7]");
  EXPECT_EQ(MessageOf([&] {
              Transpose(x, {0, 0}, kSite);
            }),
            at + "Transpose 'Transpose': [0,0] is not a permutation of the "
                 "axes of f32[2,3]");
  EXPECT_EQ(MessageOf([&] {
              Concat({x, y}, 1, kSite);
            }),
            at + "Concat 'Concat': want one dtype and equal dimensions but "
                 "axis 1, got f32[2,3] and f32[3,3]");
  EXPECT_EQ(MessageOf([&] {
              Concat({x, y}, 2, kSite);
            }),
            at + "Concat 'Concat': axis 2 is outside the rank of f32[2,3]");
  EXPECT_EQ(MessageOf([&] {
              Slice(x, {0, 2}, {2, 2}, kSite);
            }),
            at + "Slice 'Slice': begin [0,2] and size [2,2] leave f32[2,3]");
  EXPECT_EQ(MessageOf([&] {
              Pad(x, {0, -1}, {0, 0}, 0.0, kSite);
            }),
            at + "Pad 'Pad': want one number >= 0 per axis of f32[2,3], got "
                 "before [0,-1] and after [0,0]");
}

}  // namespace
}  // namespace replicant::graph
