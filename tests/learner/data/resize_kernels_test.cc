// The vector loops give the plain loops' bytes, on any processor.
#include "base/images/resize_kernels.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace replicant::data::internal {
namespace {

// Also where the length is no multiple of a vector's.
TEST(ResizeKernelsTest, RowsAreSummedTapByTap) {
  RandomStream random(1, "rows");
  for (int64_t length = 1; length < 70; ++length) {
    const int64_t num_taps = 1 + random.UniformInt(6);
    std::vector<uint8_t> rows(static_cast<size_t>(num_taps * length));
    std::vector<float> weights(static_cast<size_t>(num_taps));
    for (uint8_t& b : rows) b = static_cast<uint8_t>(random.UniformInt(256));
    for (float& w : weights) w = static_cast<float>(random.Uniform());
    std::vector<float> sums(static_cast<size_t>(length));
    std::vector<float> expected(sums.size(), 0.0F);
    for (size_t j = 0; j < weights.size(); ++j) {
      for (size_t k = 0; k < sums.size(); ++k) {
        expected[k] +=
            weights[j] * static_cast<float>(rows[j * sums.size() + k]);
      }
    }
    SumRows(rows.data(), length, weights.data(), num_taps, length, sums.data());
    EXPECT_EQ(sums, expected) << "length " << length;
  }
}

// Rounded half up, and kept within a byte.
TEST(ResizeKernelsTest, PixelsAreRounded) {
  const std::vector<float> row = {0.49F, 0.5F,   1.49F, 254.5F, 300.0F,
                                  -3.0F, 100.0F, 10.0F, 50.5F,  0.0F};
  const std::vector<int64_t> firsts = {10, 11, 11};
  const std::vector<int64_t> ends = {0, 1, 2, 4};
  const std::vector<float> weights = {1.0F, 1.0F, 0.5F, 0.5F};
  std::vector<uint8_t> rgb(10);
  SumPixels(row.data(),
            {.firsts = firsts.data(),
             .ends = ends.data(),
             .weights = weights.data(),
             .origin = 10},
            3, rgb.data());
  rgb.pop_back();
  EXPECT_EQ(rgb, (std::vector<uint8_t>{0, 1, 1, 255, 255, 0, 177, 155, 24}));
}

}  // namespace
}  // namespace replicant::data::internal
