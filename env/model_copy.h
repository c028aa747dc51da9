#pragma once

#include <filesystem>

namespace replicant::env {

// Copies a model with all files that it reads, so that the copy needs nothing
// outside `folder`:
//
//   model.xml        the MJCF or URDF file with its includes in their places
//   assets/N/        each mesh, texture, height field, skin and submodel, under
//                    its own name, since MuJoCo names assets after their files
//   NAME.mjz, .zip   a model that is an archive, and nothing else
//
// All other attributes stay unchanged. Files are searched as MuJoCo searches
// them. An asset without a file is left out; compare the compiled models
// (FirstDifference() in env/model_fields.h) to be sure of the copy.
//
// Makes the folder and returns the path of the copied model. Throws IoError if
// the model or an include is missing, is not XML or cannot be written.
std::filesystem::path CopyMjcf(const std::filesystem::path& mjcf,
                               const std::filesystem::path& folder);
// The path of the model that CopyMjcf() makes.
std::filesystem::path CopyOfMjcf(const std::filesystem::path& mjcf,
                                 const std::filesystem::path& folder);

}  // namespace replicant::env
