#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "learner/data/files/image.h"

// Decoders of the visible part of a JPEG or PNG file.
//
// Every colour type becomes 8-bit RGB: grey is repeated, 16-bit channels keep
// the high 8 bits, CMYK is converted as in Pillow, transparency is dropped, and
// an animated PNG gives its first frame. Colour profiles and camera orientation
// are ignored.
namespace replicant::data {

// Larger images are refused.
constexpr int64_t kMaxPixels = 100'000'000;

// Chooses the part to decode for an image size: inside, with positive area.
using ChooseBox = std::function<Box(const ImageSize&)>;

// Decodes into `*image`, reusing its memory, and returns the position of the
// chosen box in it. JPEG data beyond the reach of a filter around the box is
// not decoded; a JPEG box of at least twice `min_side` pixels is decoded at
// 1/2, 1/4 or 1/8 of the size by the inverse DCT.
//
// Throws DamagedImage, "<where>: ...", for a file that is neither format, is
// damaged or truncated, or has more than kMaxPixels; and what `choose` throws.
Box DecodeImage(std::span<const std::byte> bytes, const std::string& where,
                const ChooseBox& choose, int64_t min_side, Image* image);

// The same for one format.
Box DecodeJpeg(std::span<const std::byte> bytes, const std::string& where,
               const ChooseBox& choose, int64_t min_side, Image* image);
Box DecodePng(std::span<const std::byte> bytes, const std::string& where,
              const ChooseBox& choose, Image* image);

}  // namespace replicant::data
