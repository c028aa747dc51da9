#include "env/model_path.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace replicant::env {

std::filesystem::path MujocoPath(const std::filesystem::path& path) {
  std::string text = path.string();
  std::replace(text.begin(), text.end(), '\\', '/');
  return std::filesystem::path(text).lexically_normal();
}

bool IsModelArchive(const std::filesystem::path& path) {
  return path.extension() == ".mjz" || path.extension() == ".zip";
}

bool IsMisnamedArchive(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return !IsModelArchive(path) && IsModelArchive("model" + extension);
}

}  // namespace replicant::env
