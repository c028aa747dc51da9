#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>

#include "base/clock.h"

namespace replicant {

// A thread for work that waits for a disk, so that a loop that supervises or
// trains need not wait: a stalled disk can delay one write() or fsync() for
// minutes.
//
// Work runs in the order of Post(), one piece after another. It must own
// everything that it uses, since it may outlive the object that posted it.
//
// Thread-safety: any thread.
class DiskQueue {
 public:
  explicit DiskQueue(std::string thread_name = "disk",
                     Clock& clock = Clock::Real());
  // Finishes the work, for at most kEndPatience. Then it logs an error and
  // abandons the thread to the stalled disk.
  ~DiskQueue();
  DiskQueue(const DiskQueue&) = delete;
  DiskQueue& operator=(const DiskQueue&) = delete;

  // Does not wait. The future is ready once the work is done; its get() throws
  // what the work threw. Its destructor does not wait.
  std::future<void> Post(std::function<void()> work);

  // Waits until everything posted before is done. Returns false if it is not
  // after `timeout`, in real time.
  [[nodiscard]] bool Await(Clock::Duration timeout);

  // Seconds for which the current piece of work has run; 0 without one.
  double WaitSeconds() const;

  static constexpr Clock::Duration kEndPatience = std::chrono::seconds(10);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Posts to `queue`, or does the work at once if that is null.
std::future<void> PostOrRun(DiskQueue* queue, std::function<void()> work);

// Whether the work of a future has ended; false for a future without work.
bool IsDone(const std::future<void>& future);

}  // namespace replicant
