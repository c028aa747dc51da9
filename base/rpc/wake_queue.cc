#include "base/rpc/wake_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace replicant::rpc {

WakeEvent::WakeEvent() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_ < 0) throw IoError::FromErrno("create", "eventfd", errno);
}

WakeEvent::~WakeEvent() { ::close(fd_); }

void WakeEvent::Wake() {
  // fails only if the counter is full, and then fd_ is readable anyway
  while (::eventfd_write(fd_, 1) != 0 && errno == EINTR) {
  }
}

void WakeEvent::Clear() {
  eventfd_t count = 0;
  while (::eventfd_read(fd_, &count) != 0 && errno == EINTR) {
  }
}

void WakeQueue::Post(Work work) {
  {
    MutexLock lock(mutex_);
    work_.push_back(std::move(work));
  }
  Wake();
}

std::vector<WakeQueue::Work> WakeQueue::TakeAll() {
  // clear before taking the work: work that arrives in between wakes the loop
  // again
  event_.Clear();
  MutexLock lock(mutex_);
  return std::exchange(work_, {});
}

}  // namespace replicant::rpc
