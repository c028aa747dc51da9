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
  // Some milliseconds, libgomp's default: the next loop of the same step finds
  // the threads awake, even if another process has taken the core of one of
  // them for a slice of time. With a tenth of it, a busy process on one of two
  // cores cost nine tenths of the learner's updates.
  ::setenv("GOMP_SPINCOUNT", "300000", /*overwrite=*/0);
  ::execv("/proc/self/exe", argv);
  // only a failure comes back
  throw IoError(fmt::format("UsePassiveOpenMp: cannot start {} again: {}",
                            argv[0], std::strerror(errno)));
}

}  // namespace replicant
