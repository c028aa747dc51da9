#include "env/renderer/raycast/texture.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <set>
#include <string>

#include "tests/env/renderer/suite_model.h"

namespace replicant::env::raycast {
namespace {

// The colours of the four texels of `level` about (s, t), in [0, 1).
std::set<uint32_t> ColorsAbout(const Texture& texture, size_t level, double s,
                               double t) {
  const int width = texture.width[level];
  const int height = texture.height[level];
  const auto first_x = static_cast<int>(std::floor(s * width - 0.5));
  const auto first_y = static_cast<int>(std::floor(t * height - 0.5));
  std::set<uint32_t> colors;
  for (const int y : {first_y, first_y + 1}) {
    for (const int x : {first_x, first_x + 1}) {
      const int at = (y + height) % height * width + (x + width) % width;
      colors.insert(
          texture.texels[static_cast<size_t>(texture.offset[level] + at)] &
          Texture::kColor);
    }
  }
  return colors;
}

// Would catch: a blend that is left out although it has another colour.
TEST(TextureTest, MarkedTexelsHaveTheColorOfEveryBlend) {
  for (const char* size : {"64", "60", "37", "300"}) {
    SCOPED_TRACE(size);
    const SuiteModel model = ModelOf(
        "<mujoco><asset><texture name='t' type='2d' builtin='checker' "
        "rgb1='.9 .1 .1' rgb2='.1 .2 .9' mark='edge' markrgb='1 1 0' width='" +
        std::string(size) + "' height='" + size +
        "'/></asset><worldbody/></mujoco>");
    const Texture texture = MakeTexture(*model.model, 0);
    std::mt19937 random(1);
    std::uniform_real_distribution<double> place(0, 1);
    std::array<int, 3> counts{};  // unmarked, even, even below
    for (int i = 0; i < 200'000; ++i) {
      const double s = place(random);
      const double t = place(random);
      const auto level = static_cast<size_t>(i % (texture.num_levels - 1));
      const int width = texture.width[level];
      const int height = texture.height[level];
      const int x =
          static_cast<int>(std::floor(s * width - 0.5) + width) % width;
      const int y =
          static_cast<int>(std::floor(t * height - 0.5) + height) % height;
      const uint32_t texel = texture.texels[static_cast<size_t>(
          texture.offset[level] + y * width + x)];
      const std::set<uint32_t> own{texel & Texture::kColor};
      if ((texel & Texture::kEven) == 0) {
        ++counts[0];
        EXPECT_NE(ColorsAbout(texture, level, s, t), own);
        continue;
      }
      ++counts[1];
      ASSERT_EQ(ColorsAbout(texture, level, s, t), own);
      if ((texel & Texture::kEvenBelow) == 0) continue;
      ++counts[2];
      ASSERT_EQ(ColorsAbout(texture, level + 1, s, t), own);
    }
    EXPECT_GT(counts[0], 10'000);
    EXPECT_GT(counts[2], counts[1] / 4);
  }
}

}  // namespace
}  // namespace replicant::env::raycast
