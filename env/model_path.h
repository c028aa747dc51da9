#pragma once

#include <filesystem>

namespace replicant::env {

// Returns a path as MuJoCo reads it: backslashes separate folders, and
// "folder/.." falls away as text, even if the folder is a symbolic link.
std::filesystem::path MujocoPath(const std::filesystem::path& path);

// Whether MuJoCo reads the file as an archive of a model: NAME.mjz or NAME.zip,
// with the model in model.xml or NAME.xml, at the top or in a folder NAME.
bool IsModelArchive(const std::filesystem::path& path);
// Whether only capital letters in .MJZ or .ZIP keep MuJoCo from it.
bool IsMisnamedArchive(const std::filesystem::path& path);

}  // namespace replicant::env
