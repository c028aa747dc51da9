#pragma once

#include <functional>
#include <vector>

#include "base/mutex.h"

namespace replicant::rpc {

// Wakes a loop that waits in Poll() or Client::AwaitAny(). Other threads call
// Wake(), which makes fd() readable; the loop calls Clear() and then looks for
// work.
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
  // Call it before looking for work: a later Wake() then wakes the loop again.
  void Clear();

 private:
  const int fd_;
};

// Work for a loop that waits in Poll(). Other threads add work, which makes
// fd() readable; the loop takes it.
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
