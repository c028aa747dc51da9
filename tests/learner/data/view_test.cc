#include "learner/data/view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace replicant::data {
namespace {

constexpr ImageSize kSize{.height = 300, .width = 400};

View Training(const AugmentationConfig& config, int number) {
  return {config, RandomStream(1, "view-" + std::to_string(number))};
}

TEST(ViewTest, EvaluationSeesTheSquareInTheCentre) {
  const Box box = View(0.5).ChooseBox(kSize);
  EXPECT_EQ(box.left, 125.0);
  EXPECT_EQ(box.right, 275.0);
  EXPECT_EQ(box.top, 75.0);
  EXPECT_EQ(box.bottom, 225.0);
  std::vector<uint8_t> rgb(2 * 2 * 3);
  std::iota(rgb.begin(), rgb.end(), uint8_t{0});
  const std::vector<uint8_t> before = rgb;
  View(0.5).Finish(2, rgb);
  EXPECT_EQ(rgb, before);
}

// Area uniform in [min_area, 1] before a try is rejected, ratio in [3/4, 4/3].
TEST(ViewTest, CropsHaveAreasAndRatiosInTheirRanges) {
  AugmentationConfig config;
  config.min_area = 0.2;
  double smallest = 1.0;
  double largest = 0.0;
  for (int i = 0; i < 2000; ++i) {
    const Box box = Training(config, i).ChooseBox(kSize);
    ASSERT_GE(box.left, 0.0);
    ASSERT_GE(box.top, 0.0);
    ASSERT_LE(box.right, 400.0);
    ASSERT_LE(box.bottom, 300.0);
    const double area = box.width() * box.height() / (300.0 * 400.0);
    smallest = std::min(smallest, area);
    largest = std::max(largest, area);
    // sides are rounded
    EXPECT_NEAR(std::log(box.width() / box.height()), 0.0,
                std::log(4.0 / 3.0) + 0.02);
  }
  EXPECT_NEAR(smallest, 0.2, 0.01);
  EXPECT_GT(largest, 0.95);
}

TEST(ViewTest, CropOfANarrowImageLiesInTheCentre) {
  AugmentationConfig config;
  config.min_area = 0.9;
  const Box box = Training(config, 0).ChooseBox({.height = 10, .width = 1000});
  EXPECT_NEAR(box.width(), 10.0 * 4.0 / 3.0, 1e-9);
  EXPECT_EQ(box.height(), 10.0);
  EXPECT_NEAR(box.left + box.right, 1000.0, 1e-9);
}

TEST(ViewTest, HalfOfTheImagesAreMirrored) {
  int num_flipped = 0;
  for (int i = 0; i < 1000; ++i) {
    std::vector<uint8_t> rgb = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    Training({}, i).Finish(2, rgb);
    if (rgb[0] == 1) continue;
    ++num_flipped;
    EXPECT_EQ(rgb,
              (std::vector<uint8_t>{4, 5, 6, 1, 2, 3, 10, 11, 12, 7, 8, 9}));
  }
  // five standard deviations
  EXPECT_NEAR(num_flipped, 500, 79);
}

// A picture of one grey has no contrast and no saturation, so that only the
// brightness changes it, by less than the given share.
TEST(ViewTest, JitterOfAGreyImageIsABrightness) {
  AugmentationConfig config;
  config.color_jitter = 0.2;
  std::vector<int> values;
  for (int i = 0; i < 200; ++i) {
    std::vector<uint8_t> rgb(2 * 2 * 3, 100);
    Training(config, i).Finish(2, rgb);
    EXPECT_EQ(std::ranges::count(rgb, rgb[0]), 12);
    values.push_back(rgb[0]);
  }
  const auto [low, high] = std::ranges::minmax(values);
  EXPECT_GE(low, 80);
  EXPECT_LE(low, 84);
  EXPECT_GE(high, 116);
  EXPECT_LE(high, 120);
}

}  // namespace
}  // namespace replicant::data
