// Any bytes are a JPEG or an IoError. The box lies in what was decoded, so that
// it can be resized.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/images/decode.h"
#include "base/images/resize.h"

namespace replicant::data {
namespace {

constexpr int64_t kSide = 16;

// A part that depends on the first bytes, so that many are tried.
Box PartOf(const ImageSize& size, std::span<const std::byte> bytes) {
  const auto share = [&](size_t i) {
    return bytes.size() > i ? std::to_integer<int>(bytes[i]) / 256.0 : 0.0;
  };
  const auto width = static_cast<double>(size.width);
  const auto height = static_cast<double>(size.height);
  Box box{.left = share(0) * width, .top = share(1) * height};
  box.right = box.left + (width - box.left) * (1.0 + share(2)) / 2.0;
  box.bottom = box.top + (height - box.top) * (1.0 + share(3)) / 2.0;
  return box;
}

void DecodeAndResize(std::span<const std::byte> bytes) {
  const auto choice = bytes.first(std::min<size_t>(bytes.size(), 4));
  Image image;
  const Box box = DecodeJpeg(
      bytes.subspan(choice.size()), "fuzz",
      [&](const ImageSize& size) {
        // slow images are no finding
        if (size.height * size.width > 1'000'000) throw IoError("large");
        return PartOf(size, choice);
      },
      kSide, &image);
  std::vector<uint8_t> rgb(kSide * kSide * 3);
  Resizer().Resize(image, box, {kSide, kSide}, rgb);
}

}  // namespace
}  // namespace replicant::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    replicant::data::DecodeAndResize(std::as_bytes(std::span(data, size)));
  } catch (const replicant::IoError&) {
  }
  return 0;
}
