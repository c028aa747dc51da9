#include "base/images/folder_entries.h"

#include <algorithm>

#include "base/error.h"

namespace replicant::data {

std::vector<std::filesystem::directory_entry> FolderEntries(
    const std::filesystem::path& folder) {
  std::vector<std::filesystem::directory_entry> entries;
  try {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      entries.push_back(entry);
    }
  } catch (const std::filesystem::filesystem_error& error) {
    throw IoError::FromErrno("cannot read folder", folder,
                             error.code().value());
  }
  std::ranges::sort(entries);
  return entries;
}

}  // namespace replicant::data
