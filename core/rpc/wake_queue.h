#pragma once

#include <functional>
#include <vector>

#include "core/base/mutex.h"

namespace replicant::rpc {

// Wakes a loop that waits in Poll() or Client::AwaitAny(): other threads call
// Wake(), fd() turns readable, the loop calls Clear() and looks what there is.
//
// Thread-safety: all methods may be called from any thread.
class WakeEvent {
 public:
  // Throws IoError if no file descriptor is left.
  WakeEvent();
  ~WakeEvent();
  WakeEvent(const WakeEvent&) = delete;
  WakeEvent& operator=(const WakeEvent&) = delete;

  int fd() const { return fd_; }
  void Wake();
  // Before the loop looks: what comes after that wakes it again.
  void Clear();

 private:
  const int fd_;
};

// Work for a loop that waits in Poll(): other threads add it, fd() turns
// readable, the loop takes it.
//
// Thread-safety: all methods may be called from any thread.
class WakeQueue {
 public:
  using Work = std::function<void()>;

  int fd() const { return event_.fd(); }

  void Post(Work work) EXCLUDES(mutex_);
  // Makes fd() readable without any work.
  void Wake() { event_.Wake(); }
  // Takes all work, in the order it was posted, and clears fd().
  std::vector<Work> TakeAll() EXCLUDES(mutex_);

 private:
  WakeEvent event_;
  Mutex mutex_;
  std::vector<Work> work_ GUARDED_BY(mutex_);
};

}  // namespace replicant::rpc
