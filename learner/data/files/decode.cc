#include "learner/data/files/decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace replicant::data {
namespace {

template <size_t kSize>
bool BeginsWith(std::span<const std::byte> bytes,
                const std::array<uint8_t, kSize>& magic) {
  return bytes.size() >= kSize &&
         std::ranges::equal(magic, bytes.first(kSize), {}, {},
                            [](std::byte b) { return uint8_t(b); });
}

constexpr std::array<uint8_t, 3> kJpeg = {0xff, 0xd8, 0xff};
constexpr std::array<uint8_t, 8> kPng = {0x89, 'P',  'N',  'G',
                                         '\r', '\n', 0x1a, '\n'};

}  // namespace

Box DecodeImage(std::span<const std::byte> bytes, const std::string& where,
                const ChooseBox& choose, int64_t min_side, Image* image) {
  if (BeginsWith(bytes, kJpeg)) {
    return DecodeJpeg(bytes, where, choose, min_side, image);
  }
  if (BeginsWith(bytes, kPng)) return DecodePng(bytes, where, choose, image);
  throw DamagedImage(fmt::format("{}: neither a JPEG nor a PNG", where));
}

}  // namespace replicant::data
