#pragma once

#include <cstdlib>
#include <filesystem>

namespace replicant::testing {

// The root of the repository: `built`, where the program was built
// (REPLICANT_SOURCE_DIR), or the folder that the environment names, for a
// program that is run on another machine (scripts/gpu/check --pack).
inline std::filesystem::path SourceFolder(const char* built) {
  const char* const moved = std::getenv("REPLICANT_SOURCE_FOLDER");
  return moved == nullptr ? built : moved;
}

}  // namespace replicant::testing
