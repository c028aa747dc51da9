#pragma once

#include <string>

namespace replicant::env {

// Whether the name of an object of a model matches a pattern of the shell
// (fnmatch(3)): "*", "left_*". "*" also matches objects without a name,
// `name` nullptr or "".
bool MatchesPattern(const std::string& pattern, const char* name);

}  // namespace replicant::env
