#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace replicant::metrics {

// An RGB picture that someone else owns.
struct ImageView {
  // [H, W, 3], u8, rows from top to bottom
  std::span<const uint8_t> pixels;
  int height = 0;
  int width = 0;
};

// The bytes of a PNG file with this picture, 8 bits a channel, sRGB.
// Throws InvalidArgument unless height and width are in [1, 16384] and
// `pixels` holds height * width * 3 bytes.
std::string EncodePng(const ImageView& image);

}  // namespace replicant::metrics
