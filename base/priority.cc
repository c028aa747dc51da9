#include "base/priority.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/error.h"

namespace replicant {

void LowerPriority(int levels) {
  if (levels < 0) {
    throw InvalidArgument(
        fmt::format("LowerPriority: levels must be >= 0, got {}", levels));
  }
  if (levels == 0) return;
  constexpr int kNicest = 19;
  // 0 is the calling thread; the result -1 is a valid niceness
  errno = 0;
  const int niceness = ::getpriority(PRIO_PROCESS, 0);
  REPLICANT_CHECK(errno == 0, "getpriority: error {}", errno);
  const int error =
      ::setpriority(PRIO_PROCESS, 0, std::min(kNicest, niceness + levels));
  // raising the niceness needs no privilege
  REPLICANT_CHECK(error == 0, "setpriority: error {}", errno);
}

}  // namespace replicant
