#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/images/decode.h"

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_NO_STDIO
#define STBI_ONLY_BMP
#include <stb/stb_image.h>

namespace replicant::data {

Box DecodeBmp(std::span<const std::byte> bytes, const std::string& where,
              const ChooseBox& choose, Image* image) {
  const auto* const data = reinterpret_cast<const stbi_uc*>(bytes.data());
  // a reader refuses larger files
  const auto size_bytes = static_cast<int>(bytes.size());
  const auto damaged = [&] {
    return DamagedImage(
        fmt::format("{}: damaged BMP: {}", where, stbi_failure_reason()));
  };
  int width = 0;
  int height = 0;
  int channels = 0;
  if (stbi_info_from_memory(data, size_bytes, &width, &height, &channels) ==
      0) {
    throw damaged();
  }
  // rows may be stored from the top, as a negative height
  const ImageSize size{.height = std::abs(height), .width = width};
  CheckSize(size, where);
  const Box box = choose(size);
  const std::unique_ptr<stbi_uc, decltype(&stbi_image_free)> rgb(
      stbi_load_from_memory(data, size_bytes, &width, &height, &channels,
                            /*desired_channels=*/3),
      &stbi_image_free);
  if (!rgb) throw damaged();
  SetSize(size, image);
  std::copy_n(rgb.get(), image->rgb.size(), image->rgb.begin());
  return box;
}

}  // namespace replicant::data
