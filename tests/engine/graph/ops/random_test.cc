#include "engine/graph/ops/random.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/graph/ops/image.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::graph {
namespace {

using testing::GraphRunner;
using testing::MessageOf;
using testing::Values;
using V = std::vector<double>;

constexpr CallSite kSite{"model.cc", 12};

Output Step(GraphRunner& runner, double step) {
  return runner.Input("step", Values(DType::kI64, Shape({}), {step}));
}

TEST(RandomTest, RowsDependOnTheirGlobalNumberOnly) {
  GraphRunner one;
  const V whole = one.Eval(RandomNormal({.name = "noise", .step = Step(one, 3)},
                                        DType::kF64, Shape({4, 5})));
  GraphRunner two;
  const V second_half = two.Eval(
      RandomNormal({.name = "noise", .step = Step(two, 3), .first_row = 2},
                   DType::kF64, Shape({2, 5})));
  EXPECT_EQ(V(whole.begin() + 10, whole.end()), second_half);
}

TEST(RandomTest, RowsMayBeOffsetInTheRun) {
  GraphRunner one;
  const V whole = one.Eval(RandomNormal({.name = "noise", .step = Step(one, 3)},
                                        DType::kF64, Shape({6, 2})));
  GraphRunner two;
  const Output offset = two.graph().Scalar(3.0, DType::kI64);
  const V part = two.Eval(RandomNormal({.name = "noise",
                                        .step = Step(two, 3),
                                        .first_row = 1,
                                        .row_offset = offset},
                                       DType::kF64, Shape({2, 2})));
  EXPECT_EQ(part, V(whole.begin() + 8, whole.end()));
}

TEST(RandomTest, StepNameAndSeedGiveOtherNumbers) {
  const auto draw = [](uint64_t seed, const std::string& name, double step) {
    GraphRunner runner("reference", seed);
    return runner.Eval(RandomUniform({.name = name, .step = Step(runner, step)},
                                     DType::kF32, Shape({8})));
  };
  const V first = draw(1, "a", 0);
  EXPECT_EQ(draw(1, "a", 0), first);
  EXPECT_NE(draw(2, "a", 0), first);
  EXPECT_NE(draw(1, "b", 0), first);
  EXPECT_NE(draw(1, "a", 1), first);
  EXPECT_NE(draw(1, "a", 0x1p32), first);
}

// Mean and variance of n draws lie within 5 standard errors.
TEST(RandomTest, MomentsAreThoseOfTheDistribution) {
  constexpr int64_t kCount = 20000;
  const double n = kCount;
  const auto moments = [&](const V& x) {
    double mean = 0.0;
    for (const double v : x) mean += v / n;
    double variance = 0.0;
    for (const double v : x) variance += (v - mean) * (v - mean) / n;
    return std::pair(mean, variance);
  };
  GraphRunner runner;
  const Output step = Step(runner, 0);
  const Shape shape({kCount / 10, 10});
  const V uniform = runner.Eval(
      RandomUniform({.name = "u", .step = step}, DType::kF32, shape));
  const auto [u_mean, u_variance] = moments(uniform);
  EXPECT_NEAR(u_mean, 0.5, 5.0 * std::sqrt(1.0 / 12.0 / n));
  EXPECT_NEAR(u_variance, 1.0 / 12.0, 5.0 * std::sqrt(1.0 / 180.0 / n));
  for (const double u : uniform) ASSERT_TRUE(u >= 0.0 && u < 1.0);

  const V normal = runner.Eval(
      RandomNormal({.name = "n", .step = step}, DType::kF64, shape));
  const auto [n_mean, n_variance] = moments(normal);
  EXPECT_NEAR(n_mean, 0.0, 5.0 * std::sqrt(1.0 / n));
  EXPECT_NEAR(n_variance, 1.0, 5.0 * std::sqrt(2.0 / n));
}

TEST(RandomTest, IntegersTakeEveryValueOfTheRange) {
  GraphRunner runner;
  const V x = runner.Eval(
      RandomInt({.name = "i", .step = Step(runner, 0)}, Shape({9000}), -4, 5));
  std::vector<int> counts(9, 0);
  for (const double v : x) {
    ASSERT_TRUE(v >= -4 && v <= 4);
    ++counts[static_cast<size_t>(v + 4)];
  }
  // 5 standard deviations of a binomial of 9000 with p = 1/9
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(RandomTest, RefusesATakenNameAndOtherSteps) {
  Graph g;
  const Output step = g.Input("step", DType::kI64, Shape({}));
  const Output x = g.Input("x", DType::kF32, Shape({}));
  RandomUniform({.name = "u", .step = step}, DType::kF32, Shape({2}));
  EXPECT_EQ(MessageOf([&] {
              RandomUniform({.name = "u", .step = step}, DType::kF32,
                            Shape({2}), kSite);
            }),
            "model.cc:12: the random stream 'u' is taken; hint: two ops with "
            "one stream would draw the same numbers");
  EXPECT_EQ(MessageOf([&] {
              RandomNormal({.name = "", .step = step}, DType::kF32, Shape({2}),
                           kSite);
            }),
            "model.cc:12: RandomNormal: the name is empty; hint: it names the "
            "stream of random numbers");
  EXPECT_EQ(MessageOf([&] {
              RandomNormal({.name = "n", .step = x}, DType::kF32, Shape({2}),
                           kSite);
            }),
            "model.cc:12: RandomNormal 'n': want a scalar i64 as step, got "
            "f32[]");
  EXPECT_EQ(MessageOf([&] {
              RandomUniform({.name = "s", .step = step}, DType::kF32, Shape({}),
                            kSite);
            }),
            "model.cc:12: RandomUniform 's': want a shape of at least one "
            "dimension, got []");
  EXPECT_EQ(MessageOf([&] {
              RandomInt({.name = "i", .step = step}, Shape({2}), 3, 3, kSite);
            }),
            "model.cc:12: RandomInt: want low < high within i32, got 3 and 3");
}

TEST(ImageTest, ShiftMovesEachImageAndRepeatsTheBorder) {
  GraphRunner runner;
  const Output x = runner.Input(
      "x", Values(DType::kU8, Shape({2, 2, 2, 1}), {1, 2, 3, 4, 5, 6, 7, 8}));
  const Output offsets =
      runner.Input("o", Values(DType::kI32, Shape({2, 2}), {1, 0, -9, 1}));
  EXPECT_EQ(runner.Eval(RandomShift(x, offsets)), (V{3, 4, 3, 4, 6, 6, 6, 6}));
}

// Frames of two gray pixels, then one of two channels.
TEST(ImageTest, StacksAreGatheredFromTheirImageOfEachFrame) {
  GraphRunner runner;
  const Output frames = runner.Input(
      "frames", Values(DType::kU8, Shape({3, 4}),
                       {1, 2, 3, 4, 11, 12, 13, 14, 21, 22, 23, 24}));
  const Output slots =
      runner.Input("slots", Values(DType::kI32, Shape({2, 2}), {2, 0, 1, -1}));
  const Output gray = GatherStacks(frames, slots, {.pixels = 2, .channels = 1});
  EXPECT_EQ(gray.shape(), Shape({2, 2, 2}));
  EXPECT_EQ(runner.Eval(gray), (V{21, 1, 22, 2, 11, 0, 12, 0}));
  const Output colour =
      GatherStacks(frames, slots, {.begin = 2, .pixels = 1, .channels = 2});
  EXPECT_EQ(colour.shape(), Shape({2, 1, 4}));
  EXPECT_EQ(runner.Eval(colour), (V{23, 24, 3, 4, 13, 14, 0, 0}));
}

TEST(ImageTest, PixelsBecomeFloats) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", Values(DType::kU8, Shape({3}), {0, 51, 255}));
  const V y = runner.Eval(NormalizePixels(x, DType::kF64));
  EXPECT_EQ(y[0], -0.5);
  EXPECT_NEAR(y[1], -0.3, 1e-15);
  EXPECT_EQ(y[2], 0.5);
}

TEST(ImageTest, RefusesWhatDoesNotFit) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({2, 3, 3, 1}));
  const Output o = g.Input("o", DType::kI32, Shape({3, 2}));
  EXPECT_EQ(MessageOf([&] { RandomShift(x, o, kSite); }),
            "model.cc:12: RandomShift 'RandomShift': want images [B,H,W,C] and "
            "offsets i32[B,2], got f32[2,3,3,1] and i32[3,2]");
  EXPECT_EQ(MessageOf([&] { NormalizePixels(x, DType::kF32, 1, 0, kSite); }),
            "model.cc:12: NormalizePixels: want u8 pixels and a floating "
            "dtype, got f32[2,3,3,1] and f32");
  const Output frames = g.Input("frames", DType::kU8, Shape({5, 12}));
  EXPECT_EQ(MessageOf([&] { GatherStacks(frames, x, {}, kSite); }),
            "model.cc:12: GatherStacks 'GatherStacks': want frames u8[N,F] and "
            "slots i32[...,K], got u8[5,12] and f32[2,3,3,1]");
  EXPECT_EQ(MessageOf([&] {
              GatherStacks(frames, o, {.begin = 1, .pixels = 4, .channels = 3},
                           kSite);
            }),
            "model.cc:12: GatherStacks 'GatherStacks': an image of 4 pixels "
            "with 3 channels from byte 1 on leaves frames of 12 bytes");
}

}  // namespace
}  // namespace replicant::graph
