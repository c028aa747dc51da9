#pragma once

#include <filesystem>
#include <vector>

namespace replicant::data {

// The entries of a folder, sorted by name. Throws IoError if it cannot be read.
std::vector<std::filesystem::directory_entry> FolderEntries(
    const std::filesystem::path& folder);

}  // namespace replicant::data
