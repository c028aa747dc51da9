#include "base/images/encode_png.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace replicant::data {

std::string EncodePng(const ImageSize& size, std::span<const uint8_t> rgb) {
  REPLICANT_CHECK_EQ(rgb.size(),
                     static_cast<size_t>(size.height * size.width * 3));
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(size.width);
  image.height = static_cast<png_uint_32>(size.height);
  image.format = PNG_FORMAT_RGB;
  std::string file(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t length = file.size();
  if (png_image_write_to_memory(&image, file.data(), &length,
                                /*convert_to_8_bit=*/0, rgb.data(),
                                /*row_stride=*/0, /*colormap=*/nullptr) == 0) {
    throw Error(fmt::format("a PNG of {}x{} pixels: {}", size.width,
                            size.height, image.message));
  }
  file.resize(length);
  return file;
}

Image Tile(std::span<const uint8_t> images, int64_t side, int64_t rows,
           int64_t columns) {
  REPLICANT_CHECK_EQ(images.size(),
                     static_cast<size_t>(rows * columns * side * side * 3));
  Image result{.size = {.height = rows * side, .width = columns * side},
               .rgb = {}};
  result.rgb.resize(images.size());
  const int64_t line = side * 3;
  for (int64_t i = 0; i < rows * columns; ++i) {
    for (int64_t y = 0; y < side; ++y) {
      const int64_t to =
          (i / columns * side + y) * columns * line + i % columns * line;
      std::copy_n(images.data() + (i * side + y) * line, line,
                  result.rgb.data() + to);
    }
  }
  return result;
}

}  // namespace replicant::data
