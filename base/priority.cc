#include "base/priority.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/check.h"
#include "base/error.h"

namespace replicant {
namespace {

// Linux's struct sched_attr in its first form; not all of its headers may be
// included beside glibc's.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;  // nanoseconds; of fair policies the slice
  uint64_t deadline = 0;
  uint64_t period = 0;
};

// What Linux allows at least.
constexpr uint64_t kShortTurn = 100'000;

}  // namespace

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

void ShortenTurns() {
  SchedulingAttributes attributes;
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) !=
      0) {
    return;
  }
  if (attributes.policy != SCHED_OTHER && attributes.policy != SCHED_BATCH) {
    return;
  }
  attributes.runtime = kShortTurn;
  // refused: turns stay as they are
  (void)::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace replicant
