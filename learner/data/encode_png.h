#pragma once

#include <span>
#include <string>

#include "learner/data/image.h"

namespace replicant::data {

// A PNG file of `rgb`, u8 [height, width, 3]. Throws Error if it cannot be
// made.
std::string EncodePng(const ImageSize& size, std::span<const uint8_t> rgb);

// `rows` * `columns` images, u8 [rows * columns, side, side, 3], as one.
Image Tile(std::span<const uint8_t> images, int64_t side, int64_t rows,
           int64_t columns);

}  // namespace replicant::data
