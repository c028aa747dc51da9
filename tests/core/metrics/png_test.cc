#include "core/metrics/png.h"

#include <gtest/gtest.h>
#include <png.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace replicant::metrics {
namespace {

std::string MessageOf(const ImageView& image) {
  try {
    EncodePng(image);
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "no InvalidArgument";
}

// Would catch swapped height and width, a wrong row stride and swapped
// channels.
TEST(PngTest, DecodesToTheSamePixels) {
  constexpr int kHeight = 5;
  constexpr int kWidth = 3;
  std::vector<uint8_t> pixels(kHeight * kWidth * 3);
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<uint8_t>(i * 37);
  }
  const std::string bytes = EncodePng({pixels, kHeight, kWidth});

  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  ASSERT_NE(png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()),
            0);
  EXPECT_EQ(png.height, png_uint_32{kHeight});
  EXPECT_EQ(png.width, png_uint_32{kWidth});
  png.format = PNG_FORMAT_RGB;
  std::vector<uint8_t> decoded(PNG_IMAGE_SIZE(png));
  ASSERT_NE(png_image_finish_read(&png, nullptr, decoded.data(), 0, nullptr),
            0);
  EXPECT_EQ(decoded, pixels);
}

TEST(PngTest, AWrongSizeIsRefused) {
  const std::vector<uint8_t> pixels(12);
  EXPECT_EQ(MessageOf({pixels, 2, 3}),
            "EncodePng: want 18 bytes for a 2x3 RGB image, got 12");
  EXPECT_EQ(MessageOf({pixels, 0, 4}),
            "EncodePng: height and width must be in [1, 16384], got 0x4");
  EXPECT_EQ(MessageOf({pixels, 1, 16385}),
            "EncodePng: height and width must be in [1, 16384], got 1x16385");
  EXPECT_EQ(MessageOf({pixels, -2, -2}),
            "EncodePng: height and width must be in [1, 16384], got -2x-2");
}

}  // namespace
}  // namespace replicant::metrics
