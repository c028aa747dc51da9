#include "env/name_pattern.h"

#include <fnmatch.h>

namespace replicant::env {

bool MatchesPattern(const std::string& pattern, const char* name) {
  if (pattern == "*") return true;
  return name != nullptr && *name != '\0' &&
         fnmatch(pattern.c_str(), name, /*flags=*/0) == 0;
}

}  // namespace replicant::env
