#pragma once

#include <exception>
#include <string>

#include "core/base/mutex.h"
#include "core/base/thread.h"
#include "core/comm/communicator.h"

namespace replicant::comm {

// Makes the calls of one communicator in the order in which they were started,
// while their owner computes on: that of all ranks must be the same.
//
//   CollectiveQueue queue(communicator);
//   CollectiveQueue::Work reduce{{.kind = kAllReduce, ...}};
//   queue.Start(reduce);
//   ...                       // memory of the call is not to be touched
//   queue.Wait(reduce);
//
// A thread of the queue makes them; so does whoever waits for one, so that a
// call that is waited for at once costs no switch of threads. Starting a call
// allocates nothing.
//
// Errors: the first call that fails throws in its Wait(), and so do all that
// were started after it.
//
// Thread-safety: Wait() and Drain() from any thread; Start() and Run() by one
// after the other, which the order of the calls asks for.
class CollectiveQueue {
 public:
  // A call, to be started as often as one likes; it must not be destroyed or
  // changed while it is under way.
  class Work {
   public:
    explicit Work(const Collective& collective) : collective_(collective) {}

   private:
    friend class CollectiveQueue;
    const Collective collective_;
    Work* next_ = nullptr;
    bool is_done_ = true;
  };

  // The communicator outlives the queue, which alone calls it from now on.
  explicit CollectiveQueue(Communicator* communicator);
  // Calls under way are completed first; one that hangs needs an Abort().
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
  // What the thread does.
  void RunAll() EXCLUDES(mutex_);
  void FinishAllUpTo(Work& work) REQUIRES(mutex_);
  // Makes the first call of the queue, the mutex released meanwhile.
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
