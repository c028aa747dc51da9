#include "core/base/openmp.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/base/error.h"

namespace replicant {

void UsePassiveOpenMp(char* const* argv) {
  constexpr const char* kPolicy = "OMP_WAIT_POLICY";
  if (std::getenv(kPolicy) != nullptr) return;
  ::setenv(kPolicy, "passive", /*overwrite=*/1);
  // a millisecond or two, so that the next loop of the same step finds them
  // awake: waking sleepers costs a step of D4PG from pixels a tenth of its time
  ::setenv("GOMP_SPINCOUNT", "30000", /*overwrite=*/0);
  ::execv("/proc/self/exe", argv);
  // only a failure comes back
  throw IoError(fmt::format("UsePassiveOpenMp: cannot start {} again: {}",
                            argv[0], std::strerror(errno)));
}

}  // namespace replicant
