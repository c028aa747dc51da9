#include "env/tasks/spline_zoom.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace replicant::env {
namespace {

constexpr std::array kImage = {0.618, 0.752, 0.397, 0.584, 0.909, 0.912,
                               0.257, 0.326, 0.194, 0.525, 0.175, 0.538,
                               0.702, 0.387, 0.725, 0.652};

TEST(SplineZoomTest, GoesThroughTheGivenValues) {
  // 4 -> 10: every third value is one of the old
  const std::vector<double> zoomed = SplineZoom(kImage, 4, 10);
  for (size_t row = 0; row < 4; ++row) {
    for (size_t column = 0; column < 4; ++column) {
      EXPECT_NEAR(zoomed[30 * row + 3 * column], kImage[4 * row + column],
                  1e-15);
    }
  }
}

TEST(SplineZoomTest, KeepsAConstant) {
  const std::vector<double> ones(9, 1.0);
  for (const double value : SplineZoom(ones, 3, 8)) {
    EXPECT_NEAR(value, 1.0, 1e-15);
  }
}

// Rows 0, 5 and 10 of scipy.ndimage.zoom(image, 11 / 4) of scipy 1.17.1.
TEST(SplineZoomTest, EqualsScipy) {
  const std::vector<double> zoomed = SplineZoom(kImage, 4, 11);
  ASSERT_EQ(zoomed.size(), 121U);
  const std::array first = {0.618, 0.6559656000000001, 0.7254528000000001,
                            0.7598472000000004, 0.6996368000000003};
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_NEAR(zoomed[i], first[i], 1e-14);
  }
  const std::array middle = {0.43970312500000003, 0.21493240000000013,
                             0.11931172499999992, 0.18848639999999992,
                             0.316569675,         0.38550000000000023};
  for (size_t i = 0; i < middle.size(); ++i) {
    EXPECT_NEAR(zoomed[5 * 11 + 5 + i], middle[i], 1e-14);
  }
  const std::array last = {
      0.7020000000000005, 0.6361398000000003,  0.5028624000000004,
      0.3986226000000004, 0.41108640000000035, 0.52575,
      0.6621936,          0.7397554000000001,  0.7291696000000004,
      0.6808342000000002, 0.6520000000000002};
  for (size_t i = 0; i < last.size(); ++i) {
    EXPECT_NEAR(zoomed[110 + i], last[i], 1e-14);
  }
}

}  // namespace
}  // namespace replicant::env
