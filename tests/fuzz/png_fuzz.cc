// Any bytes are a PNG or an IoError.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "base/images/decode.h"

namespace replicant::data {
namespace {

void Decode(std::span<const std::byte> bytes) {
  Image image;
  DecodePng(
      bytes, "fuzz",
      [](const ImageSize& size) {
        // slow images are no finding
        if (size.height * size.width > 1'000'000) throw IoError("large");
        return Box{.right = static_cast<double>(size.width),
                   .bottom = static_cast<double>(size.height)};
      },
      &image);
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
