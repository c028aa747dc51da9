// Any bytes are a BMP, PNM, TIFF or WebP, or an IoError. The first byte chooses
// the format.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "base/images/decode.h"

namespace replicant::data {
namespace {

void Decode(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  constexpr const char* kMagics[] = {"BM", "P2",    "P3",  "P5",
                                     "P6", "II*\0", "RIFF"};
  constexpr size_t kMagicBytes[] = {2, 2, 2, 2, 2, 4, 4};
  const size_t format = std::to_integer<size_t>(bytes[0]) % 7;
  // a mutation seldom keeps the first bytes
  std::string text(kMagics[format], kMagicBytes[format]);
  text.append(reinterpret_cast<const char*>(bytes.data()) + 1,
              bytes.size() - 1);
  if (format == 6 && text.size() >= 12) text.replace(8, 4, "WEBP");
  Image image;
  DecodeImage(
      std::as_bytes(std::span(text)), "fuzz",
      [](const ImageSize& size) {
        // slow images are no finding
        if (size.height * size.width > 1'000'000) throw IoError("large");
        return Box{.right = static_cast<double>(size.width),
                   .bottom = static_cast<double>(size.height)};
      },
      /*min_side=*/32, &image);
  REPLICANT_CHECK_EQ(
      image.rgb.size(),
      static_cast<size_t>(image.size.height * image.size.width * 3));
}

}  // namespace
}  // namespace replicant::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    replicant::data::Decode(std::as_bytes(std::span(data, size)));
  } catch (const replicant::IoError&) {
  }
  return 0;
}
