#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "learner/data/image.h"

// Decoders of the part of a JPEG or PNG file that a network will see.
//
// Every colour type becomes RGB of 8 bits: grey is repeated, of 16 bits the
// high 8 are kept, CMYK is converted as Pillow does, transparency is dropped,
// of an animated PNG the first frame is decoded. Colour profiles and the
// orientation of a camera are ignored.
namespace replicant::data {

// Images of more pixels are refused.
constexpr int64_t kMaxPixels = 100'000'000;

// Of the size of an image, the part to decode: inside it, with an area.
using ChooseBox = std::function<Box(const ImageSize&)>;

// Decodes into `*image`, whose memory is used again, and returns where the
// chosen box lies in it. Of a JPEG, what a filter around the box does not need
// is not decoded, and a box of at least twice `min_side` pixels is decoded at
// 1/2, 1/4 or 1/8 of the size, by its transform.
//
// Throws IoError, "<where>: ...", for a file that is neither, is damaged or cut
// off, or has more than kMaxPixels; and what `choose` throws.
Box DecodeImage(std::span<const std::byte> bytes, const std::string& where,
                const ChooseBox& choose, int64_t min_side, Image* image);

// The same for one format.
Box DecodeJpeg(std::span<const std::byte> bytes, const std::string& where,
               const ChooseBox& choose, int64_t min_side, Image* image);
Box DecodePng(std::span<const std::byte> bytes, const std::string& where,
              const ChooseBox& choose, Image* image);

}  // namespace replicant::data
