#include "replicator/comm/collective_queue.h"

#include "base/check.h"

namespace replicant::comm {

CollectiveQueue::CollectiveQueue(Communicator* communicator)
    : communicator_(*communicator),
      thread_("collectives", [this](const Thread::StopToken&) { RunAll(); }) {}

CollectiveQueue::~CollectiveQueue() {
  {
    const MutexLock lock(mutex_);
    is_stopped_ = true;
    changed_.NotifyAll();
  }
  thread_.Join();
}

void CollectiveQueue::Start(Work& work) {
  const MutexLock lock(mutex_);
  Append(work);
  changed_.NotifyAll();
}

void CollectiveQueue::Run(Work& work) {
  const MutexLock lock(mutex_);
  Append(work);
  FinishAllUpTo(work);
}

void CollectiveQueue::Wait(Work& work) {
  const MutexLock lock(mutex_);
  FinishAllUpTo(work);
}

void CollectiveQueue::Drain() {
  const MutexLock lock(mutex_);
  while (first_ != nullptr || is_running_) changed_.Wait(mutex_);
}

void CollectiveQueue::Append(Work& work) {
  REPLICANT_CHECK(work.is_done_, "the call is under way already");
  work.is_done_ = false;
  work.next_ = nullptr;
  (last_ == nullptr ? first_ : last_->next_) = &work;
  last_ = &work;
}

void CollectiveQueue::FinishAllUpTo(Work& work) {
  while (!work.is_done_) {
    if (is_running_) {
      changed_.Wait(mutex_);
    } else {
      RunFirst();
    }
  }
  if (error_) std::rethrow_exception(error_);
}

void CollectiveQueue::RunAll() {
  const MutexLock lock(mutex_);
  while (!is_stopped_ || first_ != nullptr) {
    if (first_ == nullptr || is_running_) {
      changed_.Wait(mutex_);
    } else {
      RunFirst();
    }
  }
}

void CollectiveQueue::RunFirst() {
  Work& work = *first_;
  first_ = work.next_;
  if (first_ == nullptr) last_ = nullptr;
  if (!error_) {
    is_running_ = true;
    std::exception_ptr error;
    mutex_.Unlock();
    try {
      communicator_.Run(work.collective_);
    } catch (...) {
      error = std::current_exception();
    }
    mutex_.Lock();
    is_running_ = false;
    error_ = error;
  }
  work.is_done_ = true;
  changed_.NotifyAll();
}

}  // namespace replicant::comm
