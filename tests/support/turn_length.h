#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace replicant {

// The turn that the calling thread has asked the scheduler for, in nanoseconds;
// 0 where the kernel knows none (before Linux 6.12).
inline uint64_t TurnLength() {
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
  } attributes{};
  ::syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0);
  return attributes.runtime;
}

}  // namespace replicant
