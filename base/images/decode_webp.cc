#include <fmt/format.h>
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "base/images/decode.h"

namespace replicant::data {
namespace {

const uint8_t* BytesOf(std::span<const std::byte> bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

[[noreturn]] void ThrowDamaged(const std::string& where) {
  throw DamagedImage(
      fmt::format("{}: damaged WebP: it cannot be decoded", where));
}

// The first frame of an animation, with its background.
void DecodeFirstFrame(std::span<const std::byte> bytes,
                      const std::string& where, Image* image) {
  WebPAnimDecoderOptions options;
  WebPAnimDecoderOptionsInit(&options);
  options.color_mode = MODE_RGBA;
  const WebPData data = {.bytes = BytesOf(bytes), .size = bytes.size()};
  const std::unique_ptr<WebPAnimDecoder, decltype(&WebPAnimDecoderDelete)>
      decoder(WebPAnimDecoderNew(&data, &options), &WebPAnimDecoderDelete);
  WebPAnimInfo info;
  uint8_t* rgba = nullptr;
  int timestamp_ms = 0;
  if (!decoder || WebPAnimDecoderGetInfo(decoder.get(), &info) == 0 ||
      info.canvas_width != image->size.width ||
      info.canvas_height != image->size.height ||
      WebPAnimDecoderGetNext(decoder.get(), &rgba, &timestamp_ms) == 0) {
    ThrowDamaged(where);
  }
  for (size_t i = 0; i < image->rgb.size() / 3; ++i) {
    for (size_t c = 0; c < 3; ++c) image->rgb[i * 3 + c] = rgba[i * 4 + c];
  }
}

}  // namespace

Box DecodeWebp(std::span<const std::byte> bytes, const std::string& where,
               const ChooseBox& choose, Image* image) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(BytesOf(bytes), bytes.size(), &features) !=
      VP8_STATUS_OK) {
    ThrowDamaged(where);
  }
  const ImageSize size{.height = features.height, .width = features.width};
  CheckSize(size, where);
  const Box box = choose(size);
  SetSize(size, image);
  if (features.has_animation != 0) {
    DecodeFirstFrame(bytes, where, image);
  } else if (WebPDecodeRGBInto(BytesOf(bytes), bytes.size(), image->rgb.data(),
                               image->rgb.size(),
                               static_cast<int>(size.width * 3)) == nullptr) {
    ThrowDamaged(where);
  }
  return box;
}

}  // namespace replicant::data
