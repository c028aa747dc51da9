#pragma once

#include <string>

namespace replicant::fleet {

// Version and commit of this program: "0.2.0 (git 0123456789ab)". "+changes"
// follows the commit if tracked files differed from it; outside a repository
// "0.2.0 (no git)".
std::string Version();

}  // namespace replicant::fleet
