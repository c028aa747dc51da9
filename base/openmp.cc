#include "base/openmp.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace replicant {

void UsePassiveOpenMp(char* const* argv) {
  constexpr const char* kPolicy = "OMP_WAIT_POLICY";
  if (std::getenv(kPolicy) != nullptr) return;
  ::setenv(kPolicy, "passive", /*overwrite=*/1);
  // About a tenth of a millisecond: the next loop of the same step finds the
  // threads awake. With libgomp's own 300000, two learners with threads on the
  // same cores could spin through each other's slices in every loop, at 1 % of
  // their rate.
  ::setenv("GOMP_SPINCOUNT", "5000", /*overwrite=*/0);
  ::execv("/proc/self/exe", argv);
  // execv() returns only on failure
  throw IoError(fmt::format("UsePassiveOpenMp: cannot start {} again: {}",
                            argv[0], std::strerror(errno)));
}

}  // namespace replicant
