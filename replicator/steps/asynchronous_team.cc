#include "replicator/steps/asynchronous_team.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "replicator/steps/replica_team.h"

namespace replicant::replicator {

// Where a thread cannot be started the destructor ends the others, as the
// delegated constructor has completed.
AsynchronousTeam::AsynchronousTeam(int size) : AsynchronousTeam() {
  const std::vector<CpuSet> groups = CoreGroups(CpuSet::OfThisThread(), size);
  for (int i = 0; i < size; ++i) {
    members_.push_back(std::make_unique<Member>());
    Member* member = members_.back().get();
    member->thread = std::make_unique<Thread>(
        fmt::format("replica-{}", i), groups[static_cast<size_t>(i)],
        [this, member](const Thread::StopToken&) { Serve(member); });
  }
}

AsynchronousTeam::~AsynchronousTeam() {
  {
    const MutexLock lock(mutex_);
    is_stopped_ = true;
    changed_.NotifyAll();
  }
  for (const auto& member : members_) member->thread.reset();
}

bool AsynchronousTeam::IsIdle(int member) const {
  const MutexLock lock(mutex_);
  return members_[static_cast<size_t>(member)]->task == nullptr;
}

void AsynchronousTeam::Start(int member, Task* task) {
  const MutexLock lock(mutex_);
  Task*& place = members_[static_cast<size_t>(member)]->task;
  REPLICANT_CHECK(place == nullptr, "replica {} is at work", member);
  task->is_done_ = false;
  task->error_ = nullptr;
  place = task;
  changed_.NotifyAll();
}

void AsynchronousTeam::Do(int member, const std::function<void()>& work) {
  Task task(work);
  Start(member, &task);
  Task* const tasks[] = {&task};
  AwaitOne(tasks);
}

size_t AsynchronousTeam::AwaitOne(std::span<Task* const> tasks) {
  REPLICANT_CHECK(!tasks.empty(), "waits for nothing");
  const MutexLock lock(mutex_);
  while (true) {
    size_t first = tasks.size();
    for (size_t i = 0; i < tasks.size(); ++i) {
      if (!tasks[i]->is_done_) continue;
      if (first == tasks.size() || tasks[i]->number_ < tasks[first]->number_) {
        first = i;
      }
    }
    if (first < tasks.size()) {
      if (tasks[first]->error_) std::rethrow_exception(tasks[first]->error_);
      return first;
    }
    changed_.Wait(mutex_);
  }
}

void AsynchronousTeam::AwaitIdleMember() const {
  const MutexLock lock(mutex_);
  while (!std::ranges::any_of(members_, &IsIdleMember)) changed_.Wait(mutex_);
}

void AsynchronousTeam::AwaitIdle() const {
  const MutexLock lock(mutex_);
  while (!std::ranges::all_of(members_, &IsIdleMember)) changed_.Wait(mutex_);
}

void AsynchronousTeam::Serve(Member* member) {
  const MutexLock lock(mutex_);
  while (true) {
    while (member->task == nullptr && !is_stopped_) changed_.Wait(mutex_);
    // wait for started work before the end
    if (member->task == nullptr) return;
    Task& task = *member->task;
    mutex_.Unlock();
    std::exception_ptr error;
    try {
      task.work_();
    } catch (...) {
      error = std::current_exception();
    }
    mutex_.Lock();
    task.error_ = error;
    task.number_ = num_done_++;
    task.is_done_ = true;
    member->task = nullptr;
    changed_.NotifyAll();
  }
}

}  // namespace replicant::replicator
