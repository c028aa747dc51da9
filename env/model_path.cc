#include "env/model_path.h"

#include <algorithm>
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

}  // namespace replicant::env
