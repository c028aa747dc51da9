#include "core/metrics/png.h"

#include <fmt/format.h>
#include <png.h>

#include "core/base/check.h"
#include "core/base/error.h"

namespace replicant::metrics {

std::string EncodePng(const ImageView& image) {
  constexpr int kMaxSide = 16384;
  const auto is_side = [](int n) { return n >= 1 && n <= kMaxSide; };
  if (!is_side(image.height) || !is_side(image.width)) {
    throw InvalidArgument(
        fmt::format("EncodePng: height and width must be in [1, {}], got {}x{}",
                    kMaxSide, image.height, image.width));
  }
  const size_t size = size_t{3} * static_cast<size_t>(image.height) *
                      static_cast<size_t>(image.width);
  if (image.pixels.size() != size) {
    throw InvalidArgument(
        fmt::format("EncodePng: want {} bytes for a {}x{} RGB image, got {}",
                    size, image.height, image.width, image.pixels.size()));
  }

  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.height = static_cast<png_uint_32>(image.height);
  png.width = static_cast<png_uint_32>(image.width);
  png.format = PNG_FORMAT_RGB;
  // libpng's bound for any content, so that it compresses once
  png_alloc_size_t png_size = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string bytes(png_size, '\0');
  const int is_ok = png_image_write_to_memory(
      &png, bytes.data(), &png_size, /*convert_to_8_bit=*/0,
      image.pixels.data(), /*row_stride=*/0, /*colormap=*/nullptr);
  REPLICANT_CHECK(is_ok != 0, "libpng: {}", png.message);
  bytes.resize(png_size);
  return bytes;
}

}  // namespace replicant::metrics
