#include "base/images/image_names.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace replicant::data {

std::string LowerExtension(std::string_view name, size_t dot) {
  std::string extension(dot == std::string_view::npos ? ""
                                                      : name.substr(dot + 1));
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return std::tolower(c); });
  return extension;
}

bool IsImageExtension(std::string_view extension) {
  constexpr std::array<std::string_view, 9> kRead = {
      "jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"};
  return std::ranges::find(kRead, extension) != kRead.end();
}

bool IsForeignImageExtension(std::string_view extension) {
  constexpr std::array<std::string_view, 15> kForeign = {
      "avif", "exr", "gif",  "heic", "heif", "ico", "jfif", "jp2",
      "jpe",  "jxl", "jpg2", "pbm",  "pnm",  "psd", "tga"};
  return std::ranges::find(kForeign, extension) != kForeign.end();
}

bool IsLeftByTools(std::string_view name) {
  if (name == "." || name == "..") return false;
  return name.starts_with('.') || name == "__MACOSX" || name == "@eaDir" ||
         name == "PaxHeader" || name.starts_with("PaxHeaders");
}

bool IsLeftByToolsInPath(std::string_view path) {
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    if (IsLeftByTools(path.substr(0, slash))) return true;
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return false;
}

}  // namespace replicant::data
