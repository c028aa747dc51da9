#include "replay/store/numbered_files.h"

#include <charconv>
#include <system_error>

#include "base/error.h"

namespace replicant::replay {

std::set<uint64_t> ListNumbered(const std::filesystem::path& folder,
                                const std::string& prefix,
                                const std::string& extension) {
  std::set<uint64_t> numbers;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  for (; !error && entries != std::filesystem::directory_iterator();
       entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    const std::string start = prefix + "-", end = "." + extension;
    if (!name.starts_with(start) || !name.ends_with(end)) continue;
    uint64_t number = 0;
    const char* const first = name.data() + start.size();
    const char* const last = name.data() + name.size() - end.size();
    const auto result = std::from_chars(first, last, number);
    if (result.ec == std::errc() && result.ptr == last && number > 0) {
      numbers.insert(number);
    }
  }
  if (error) throw IoError::FromErrno("list", folder, error.value());
  return numbers;
}

}  // namespace replicant::replay
