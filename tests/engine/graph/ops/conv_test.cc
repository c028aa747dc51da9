#include "engine/graph/ops/conv.h"

#include <gtest/gtest.h>

#include "engine/graph/ops/pool.h"
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

// One channel, by hand: the window sees [[1,2],[4,5]] first.
TEST(Conv2dTest, IsACrossCorrelation) {
  GraphRunner runner;
  const Output x = runner.Input("x", Values(DType::kF32, Shape({1, 3, 3, 1}),
                                            {1, 2, 3, 4, 5, 6, 7, 8, 9}));
  const Output w = runner.Input(
      "w", Values(DType::kF32, Shape({1, 1, 2, 2}), {1, 10, 100, 1000}));
  EXPECT_EQ(runner.Eval(Conv2d(x, w)), (V{5421, 6532, 8754, 9865}));
}

TEST(Conv2dTest, PadsWithZerosAndStrides) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", Values(DType::kF32, Shape({1, 2, 2, 1}), {1, 2, 3, 4}));
  const Output w = runner.Input(
      "w", Values(DType::kF32, Shape({1, 1, 2, 2}), {1, 10, 100, 1000}));
  const Output y = Conv2d(x, w, {.stride = 2, .padding = 1});
  ASSERT_EQ(y.shape(), Shape({1, 2, 2, 1}));
  EXPECT_EQ(runner.Eval(y), (V{1000, 200, 30, 4}));
}

// Channels: input channel c of output channel o is weighted by w[o,c].
TEST(Conv2dTest, SumsOverInputChannels) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", Values(DType::kF32, Shape({1, 1, 1, 3}), {1, 2, 3}));
  const Output w = runner.Input(
      "w", Values(DType::kF32, Shape({2, 3, 1, 1}), {1, 10, 100, 2, 20, 200}));
  EXPECT_EQ(runner.Eval(Conv2d(x, w)), (V{321, 642}));
}

TEST(Conv2dTest, GradientsMatchCentralDifferences) {
  for (const Conv2dOptions& options :
       {Conv2dOptions{}, Conv2dOptions{.stride = 2},
        Conv2dOptions{.stride = 1, .padding = 1},
        Conv2dOptions{.stride = 3, .padding = 2}}) {
    GraphRunner runner;
    const Output x =
        runner.Input("x", RandomNormal(DType::kF64, Shape({2, 5, 4, 3}), 1));
    const Output w =
        runner.Input("w", RandomNormal(DType::kF64, Shape({2, 3, 3, 2}), 2));
    EXPECT_LT(runner.MaxGradientError(Conv2d(x, w, options), {x, w}),
              kGradientTolerance);
  }
}

TEST(Conv2dTest, RefusesWhatDoesNotFit) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({2, 5, 5, 3}));
  const Output w = g.Input("w", DType::kF32, Shape({8, 4, 3, 3}));
  const Output big = g.Input("big", DType::kF32, Shape({8, 3, 7, 3}));
  const Output u8 = g.Input("u8", DType::kU8, Shape({2, 5, 5, 4}));
  const std::string at = "model.cc:12: Conv2d 'Conv2d': ";
  EXPECT_EQ(MessageOf([&] { Conv2d(x, w, {}, kSite); }),
            at + "want x [B,H,W,C] and w [O,C,KH,KW] of one C, got [2,5,5,3] "
                 "and [8,4,3,3]");
  EXPECT_EQ(MessageOf([&] { Conv2d(x, big, {}, kSite); }),
            at + "the kernel of w [8,3,7,3] is larger than x [2,5,5,3] with "
                 "padding 0");
  EXPECT_EQ(MessageOf([&] { Conv2d(x, big, {.stride = 0}, kSite); }),
            at + "want stride >= 1 and padding >= 0, got 0 and 0");
  EXPECT_EQ(MessageOf([&] { Conv2d(u8, w, {}, kSite); }),
            at + "want one floating dtype, got u8[2,5,5,4] and f32[8,4,3,3]");
}

TEST(PoolTest, TakesMaximumAndMeanOfEachWindow) {
  GraphRunner runner;
  const Output x = runner.Input("x", Values(DType::kF32, Shape({1, 3, 3, 1}),
                                            {1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(runner.Eval(MaxPool2d(x, {.window = 2, .stride = 1})),
            (V{5, 6, 8, 9}));
  EXPECT_EQ(runner.Eval(AveragePool2d(x, {.window = 2, .stride = 1})),
            (V{3, 4, 6, 7}));
  // the corner window sees one pixel, the ones at the edge two
  EXPECT_EQ(
      runner.Eval(AveragePool2d(x, {.window = 2, .stride = 2, .padding = 1})),
      (V{1, 2.5, 5.5, 7}));
  EXPECT_EQ(runner.Eval(GlobalAveragePool(x)), (V{5}));
}

TEST(PoolTest, UpsampleRepeatsPixels) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", Values(DType::kF32, Shape({1, 1, 2, 1}), {1, 2}));
  EXPECT_EQ(runner.Eval(UpsampleNearest2d(x, 2)), (V{1, 1, 2, 2, 1, 1, 2, 2}));
}

TEST(PoolTest, GradientsMatchCentralDifferences) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", RandomNormal(DType::kF64, Shape({2, 5, 4, 3}), 1));
  for (const PoolOptions& options :
       {PoolOptions{}, PoolOptions{.window = 3, .stride = 1, .padding = 1},
        PoolOptions{.window = 3, .stride = 2, .padding = 2}}) {
    EXPECT_LT(runner.MaxGradientError(MaxPool2d(x, options), {x}),
              kGradientTolerance);
    EXPECT_LT(runner.MaxGradientError(AveragePool2d(x, options), {x}),
              kGradientTolerance);
  }
  EXPECT_LT(runner.MaxGradientError(GlobalAveragePool(x), {x}),
            kGradientTolerance);
  EXPECT_LT(runner.MaxGradientError(UpsampleNearest2d(x, 3), {x}),
            kGradientTolerance);
}

TEST(PoolTest, RefusesWhatDoesNotFit) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({1, 3, 3, 1}));
  const Output flat = g.Input("flat", DType::kF32, Shape({3, 3}));
  EXPECT_EQ(MessageOf([&] { MaxPool2d(flat, {}, kSite); }),
            "model.cc:12: MaxPool2d 'MaxPool2d': want floating images "
            "[B,H,W,C], got f32[3,3]");
  EXPECT_EQ(MessageOf([&] { MaxPool2d(x, {.window = 4}, kSite); }),
            "model.cc:12: MaxPool2d 'MaxPool2d': a window of 4 does not fit "
            "f32[1,3,3,1] with padding 0");
  EXPECT_EQ(MessageOf([&] { AveragePool2d(x, {.padding = 2}, kSite); }),
            "model.cc:12: AveragePool2d 'AveragePool2d': want window >= 1, "
            "stride >= 1 and 0 <= padding < window, got 2, 2 and 2");
  EXPECT_EQ(MessageOf([&] { UpsampleNearest2d(x, 0, kSite); }),
            "model.cc:12: UpsampleNearest2d 'UpsampleNearest2d': want scale >= "
            "1, got 0");
}

}  // namespace
}  // namespace replicant::graph
