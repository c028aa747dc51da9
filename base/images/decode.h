#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/images/image.h"

// Decoders of the visible part of a JPEG, PNG, WebP, TIFF, BMP, PGM or PPM
// file.
//
// Every colour type becomes 8-bit RGB: grey is repeated, 16-bit channels keep
// the high 8 bits, CMYK is converted as in Pillow, and transparency is dropped.
// An animation gives its first frame, a TIFF its first page. Colour profiles
// and a camera's orientation are ignored.
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
// Throws DamagedImage, "<where>: ...", for a file that has none of the formats,
// is damaged or truncated, or has more than kMaxPixels; and what `choose`
// throws.
Box DecodeImage(std::span<const std::byte> bytes, const std::string& where,
                const ChooseBox& choose, int64_t min_side, Image* image);

// The same for one format.
Box DecodeJpeg(std::span<const std::byte> bytes, const std::string& where,
               const ChooseBox& choose, int64_t min_side, Image* image);
Box DecodePng(std::span<const std::byte> bytes, const std::string& where,
              const ChooseBox& choose, Image* image);
Box DecodeWebp(std::span<const std::byte> bytes, const std::string& where,
               const ChooseBox& choose, Image* image);
Box DecodeTiff(std::span<const std::byte> bytes, const std::string& where,
               const ChooseBox& choose, Image* image);
// At most 2 GiB.
Box DecodeBmp(std::span<const std::byte> bytes, const std::string& where,
              const ChooseBox& choose, Image* image);
// PGM and PPM, as text (P2, P3) or binary (P5, P6).
Box DecodePnm(std::span<const std::byte> bytes, const std::string& where,
              const ChooseBox& choose, Image* image);

// Throws DamagedImage for more than kMaxPixels, or none.
void CheckSize(const ImageSize& size, const std::string& where);
// Gives an image a size; its pixels are unspecified.
void SetSize(const ImageSize& size, Image* image);

}  // namespace replicant::data
