#pragma once

#include <functional>
#include <vector>

#include "core/base/mutex.h"

namespace replicant::rpc {

// Work for a loop that waits in Poll(): other threads add it, fd() turns
// readable, the loop takes it.
//
// Thread-safety: all methods may be called from any thread.
class WakeQueue {
 public:
  using Work = std::function<void()>;

  // Throws IoError if no file descriptor is left.
  WakeQueue();
  ~WakeQueue();
  WakeQueue(const WakeQueue&) = delete;
  WakeQueue& operator=(const WakeQueue&) = delete;

  int fd() const { return fd_; }

  void Post(Work work) EXCLUDES(mutex_);
  // Makes fd() readable without any work.
  void Wake();
  // Takes all work, in the order it was posted, and clears fd().
  std::vector<Work> TakeAll() EXCLUDES(mutex_);

 private:
  const int fd_;
  Mutex mutex_;
  std::vector<Work> work_ GUARDED_BY(mutex_);
};

}  // namespace replicant::rpc
