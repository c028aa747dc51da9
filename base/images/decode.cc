#include "base/images/decode.h"

#include <fmt/format.h>

#include <string_view>

namespace replicant::data {

Box DecodeImage(std::span<const std::byte> bytes, const std::string& where,
                const ChooseBox& choose, int64_t min_side, Image* image) {
  using std::string_view_literals::operator""sv;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              bytes.size());
  if (text.starts_with("\xff\xd8\xff")) {
    return DecodeJpeg(bytes, where, choose, min_side, image);
  }
  if (text.starts_with("\x89PNG\r\n\x1a\n")) {
    return DecodePng(bytes, where, choose, image);
  }
  if (text.starts_with("RIFF") && text.substr(0, 12).ends_with("WEBP")) {
    return DecodeWebp(bytes, where, choose, image);
  }
  // BigTIFF has a 43
  if (text.starts_with("II*\0"sv) || text.starts_with("MM\0*"sv) ||
      text.starts_with("II+\0"sv) || text.starts_with("MM\0+"sv)) {
    return DecodeTiff(bytes, where, choose, image);
  }
  if (text.starts_with("BM")) return DecodeBmp(bytes, where, choose, image);
  if (text.starts_with("P2") || text.starts_with("P3") ||
      text.starts_with("P5") || text.starts_with("P6")) {
    return DecodePnm(bytes, where, choose, image);
  }
  throw DamagedImage(fmt::format(
      "{}: not a JPEG, PNG, WebP, TIFF, BMP, PGM or PPM file", where));
}

void CheckSize(const ImageSize& size, const std::string& where) {
  if (size.height < 1 || size.width < 1) {
    throw DamagedImage(fmt::format("{}: no pixels", where));
  }
  // the product of two sides does not overflow
  if (size.height > kMaxPixels || size.width > kMaxPixels ||
      size.height * size.width > kMaxPixels) {
    throw DamagedImage(fmt::format("{}: {}x{} pixels; at most {} in all", where,
                                   size.width, size.height, kMaxPixels));
  }
}

void SetSize(const ImageSize& size, Image* image) {
  image->size = size;
  image->rgb.resize(static_cast<size_t>(size.height * size.width * 3));
}

}  // namespace replicant::data
