#pragma once

#include <filesystem>

namespace replicant::env {

// Copies a model with all files that it reads, so that the copy needs nothing
// outside `folder`:
//
//   model.xml   the MJCF file with its includes in their places
//   assets/N/   each mesh, texture, height field, skin and attached model,
//               under its own name, since MuJoCo names assets after their files
//
// All other attributes stay unchanged, so MuJoCo compiles the copy to
// the same model. Files are searched as in MuJoCo: includes next to the main
// file, then next to the including file; assets in meshdir and texturedir.
//
// Makes the folder and returns the path of model.xml. Throws IoError if a file
// is missing, is not XML or cannot be written.
std::filesystem::path CopyMjcf(const std::filesystem::path& mjcf,
                               const std::filesystem::path& folder);

}  // namespace replicant::env
