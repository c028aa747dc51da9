#pragma once

#include <span>
#include <string>

#include "base/images/image.h"

namespace replicant::data {

// Encodes `rgb`, u8 [height, width, 3], as a PNG file. Throws Error on
// failure.
std::string EncodePng(const ImageSize& size, std::span<const uint8_t> rgb);

// Tiles `rows` * `columns` images, u8 [rows * columns, side, side, 3].
Image Tile(std::span<const uint8_t> images, int64_t side, int64_t rows,
           int64_t columns);

}  // namespace replicant::data
