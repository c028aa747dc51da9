#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"

namespace replicant::replicator {

// One thread with separate processors for each replica of this process, as in
// ReplicaTeam. Each thread runs its tasks independently of the others.
//
// Thread-safety: one thread at a time.
class AsynchronousTeam {
 public:
  // Work that can be started repeatedly. The task outlives its runs.
  class Task {
   public:
    explicit Task(std::function<void()> work) : work_(std::move(work)) {}

   private:
    friend class AsynchronousTeam;
    const std::function<void()> work_;
    // the team's mutex guards these
    bool is_done_ = true;
    uint64_t number_ = 0;  // order of completion in the team
    std::exception_ptr error_;
  };

  // Throws std::system_error if the system refuses a thread.
  explicit AsynchronousTeam(int size);
  // Waits until all are idle.
  ~AsynchronousTeam();

  int size() const { return static_cast<int>(members_.size()); }

  bool IsIdle(int member) const EXCLUDES(mutex_);
  // Starts the task on an idle member (checked) and returns at once.
  void Start(int member, Task* task) EXCLUDES(mutex_);
  // Start() and AwaitOne().
  void Do(int member, const std::function<void()>& work) EXCLUDES(mutex_);
  // Waits until one of these started tasks is done and returns its index; the
  // one that ended first, if several are done. Rethrows the task's exception.
  size_t AwaitOne(std::span<Task* const> tasks) EXCLUDES(mutex_);
  // Waits until some member is idle.
  void AwaitIdleMember() const EXCLUDES(mutex_);
  // Waits until all members are idle. The exception of a task is kept for
  // AwaitOne().
  void AwaitIdle() const EXCLUDES(mutex_);

 private:
  struct Member {
    Task* task = nullptr;  // under way
    std::unique_ptr<Thread> thread;
  };

  AsynchronousTeam() = default;

  static bool IsIdleMember(const std::unique_ptr<Member>& member) {
    return member->task == nullptr;
  }
  void Serve(Member* member) EXCLUDES(mutex_);

  mutable Mutex mutex_;
  mutable CondVar changed_;
  uint64_t num_done_ GUARDED_BY(mutex_) = 0;
  bool is_stopped_ GUARDED_BY(mutex_) = false;
  // the tasks are guarded by the mutex
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace replicant::replicator
