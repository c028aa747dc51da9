#pragma once

#include <string>

namespace replicant::fleet {

// What this program was built from: "0.1.0 (git 0123456789ab)", with "+changes"
// behind the commit if tracked files differed from it; "0.1.0 (no git)" outside
// a repository.
std::string Version();

}  // namespace replicant::fleet
