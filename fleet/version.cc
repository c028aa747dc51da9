#include "fleet/version.h"

// written by cmake/ReplicantVersion.cmake at every build
#include <replicant_git.h>

namespace replicant::fleet {

std::string Version() {
  const std::string git = REPLICANT_GIT;
  return REPLICANT_VERSION " (" + (git.empty() ? "no git" : "git " + git) + ")";
}

}  // namespace replicant::fleet
