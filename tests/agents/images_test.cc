#include "agents/images.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/support/graph_runner.h"

namespace replicant::agents {
namespace {

using graph::Output;
using testing::GraphRunner;

const TaskSpec kTwoImages = {
    .has_pixels = true,
    .observation = Shape({2 * 3 * 3 + 1 * 2 * 6}),
    .images = {{"pixels/a", Shape({2, 3, 3})}, {"pixels/b", Shape({1, 2, 6})}}};

std::vector<double> Counted(int64_t first, int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), static_cast<double>(first));
  return values;
}

TEST(ImagesTest, SeveralImagesOfAnObservationAreSeparatedAndJoined) {
  GraphRunner runner;
  // two rows of 30 bytes, 0 to 59
  const Output observation = runner.Input(
      "x", testing::Values(DType::kU8, Shape({2, 30}), Counted(0, 60)));
  const std::vector<Output> images = SplitImages(kTwoImages, observation);
  ASSERT_EQ(images.size(), 2U);
  EXPECT_EQ(images[0].shape(), Shape({2, 2, 3, 3}));
  EXPECT_EQ(images[1].shape(), Shape({2, 1, 2, 6}));
  std::vector<double> first = Counted(0, 18), second = Counted(18, 12);
  for (const double x : Counted(30, 18)) first.push_back(x);
  for (const double x : Counted(48, 12)) second.push_back(x);
  EXPECT_EQ(runner.Eval(images[0]), first);
  EXPECT_EQ(runner.Eval(images[1]), second);
  EXPECT_EQ(runner.Eval(JoinImages(images)), Counted(0, 60));
}

TEST(ImagesTest, OneImageStaysAsItIs) {
  const TaskSpec task = {.has_pixels = true, .observation = Shape({2, 3, 3})};
  graph::Graph graph;
  const std::vector<Output> inputs = ImageInputs(graph, task, /*rows=*/4);
  ASSERT_EQ(inputs.size(), 1U);
  EXPECT_EQ(graph.node(inputs[0].node).name, "observation");
  EXPECT_EQ(SplitImages(task, inputs[0]), inputs);
  EXPECT_EQ(JoinImages(inputs), inputs[0]);
}

TEST(ImagesTest, InputsOfSeveralHaveTheNamesOfTheImages) {
  graph::Graph graph;
  const std::vector<Output> inputs = ImageInputs(graph, kTwoImages, 4);
  ASSERT_EQ(inputs.size(), 2U);
  EXPECT_EQ(graph.node(inputs[1].node).name, "pixels/b");
  EXPECT_EQ(inputs[1].shape(), Shape({4, 1, 2, 6}));
}

}  // namespace
}  // namespace replicant::agents
