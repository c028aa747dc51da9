#include "programs/deploy/containers.h"

#include <cctype>

namespace replicant::programs {

std::string ObjectName(const std::string& run) {
  constexpr size_t kMostBytes = 40;
  std::string name;
  for (const char c : run.substr(0, kMostBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    name +=
        std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '-';
  }
  const auto first = name.find_first_not_of('-');
  if (first == std::string::npos) return "run";
  name = name.substr(first, name.find_last_not_of('-') - first + 1);
  // the name of a Service begins with a letter
  return std::isdigit(static_cast<unsigned char>(name[0])) != 0 ? "run-" + name
                                                                : name;
}

}  // namespace replicant::programs
