#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

namespace replicant::replay {

// Returns the numbers of the files "PREFIX-NUMBER.EXTENSION" in `folder`.
// Throws IoError if the folder cannot be read.
std::set<uint64_t> ListNumbered(const std::filesystem::path& folder,
                                const std::string& prefix,
                                const std::string& extension);

}  // namespace replicant::replay
