#pragma once

#include <exception>
#include <string>

#include "base/mutex.h"
#include "base/thread.h"
#include "replicator/comm/communicator.h"

namespace replicant::comm {

// Makes the calls of one communicator in the order in which they were started,
// while their owner goes on computing. The order must be the same on all ranks.
//
//   CollectiveQueue queue(communicator);
//   CollectiveQueue::Work reduce{{.kind = kAllReduce, ...}};
//   queue.Start(reduce);
//   ...                       // do not touch the call's memory here
//   queue.Wait(reduce);
//
// A thread of the queue makes the calls. A thread in Wait() helps, so that
// Start() followed by Wait() costs no switch of threads. Starting a call
// allocates nothing.
//
// Errors: the first call that fails throws from its Wait(), and so does every
// call started after it.
//
// Thread-safety: Wait() and Drain() from any thread; Start() and Run() by one
// thread at a time, in the order of the calls.
class CollectiveQueue {
 public:
  // A call that can be started repeatedly. It must not be destroyed while it is
  // under way.
  class Work {
   public:
    explicit Work(const Collective& collective) : collective_(collective) {}

   private:
    friend class CollectiveQueue;
    const Collective collective_;
    Work* next_ = nullptr;
    bool is_done_ = true;
  };

  // The communicator must outlive the queue, and from now on only the queue may
  // call it.
  explicit CollectiveQueue(Communicator* communicator);
  // Completes the calls under way first. A call that hangs needs an Abort().
  ~CollectiveQueue();

  void Start(Work& work) EXCLUDES(mutex_);
  // Throws CommError.
  void Wait(Work& work) EXCLUDES(mutex_);
  // Start and Wait in one, without waking the thread.
  void Run(Work& work) EXCLUDES(mutex_);

  // Waits until no call is under way, failed or not.
  void Drain() EXCLUDES(mutex_);

  Communicator& communicator() { return communicator_; }

 private:
  void Append(Work& work) REQUIRES(mutex_);
  // The thread's loop.
  void RunAll() EXCLUDES(mutex_);
  void FinishAllUpTo(Work& work) REQUIRES(mutex_);
  // Makes the first call of the queue, with the mutex released meanwhile.
  void RunFirst() REQUIRES(mutex_);

  Communicator& communicator_;
  Mutex mutex_;
  CondVar changed_;
  Work* first_ GUARDED_BY(mutex_) = nullptr;
  Work* last_ GUARDED_BY(mutex_) = nullptr;
  bool is_running_ GUARDED_BY(mutex_) = false;
  bool is_stopped_ GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace replicant::comm
