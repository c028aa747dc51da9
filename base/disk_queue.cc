#include "base/disk_queue.h"

#include <spdlog/spdlog.h>

#include <deque>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/thread.h"

namespace replicant {

// Shared with the thread, which may outlive the queue.
struct DiskQueue::State {
  explicit State(Clock& c) : clock(c) {}

  void Run() {
    while (true) {
      std::packaged_task<void()> task;
      {
        MutexLock lock(mutex);
        while (tasks.empty() && !is_ending) changed.Wait(mutex);
        if (tasks.empty()) return;
        task = std::move(tasks.front());
        tasks.pop_front();
        began = clock.Now();
        is_working = true;
      }
      task();
      // destroy what the work owns before the work counts as done
      task = {};
      MutexLock lock(mutex);
      is_working = false;
      ++num_done;
      changed.NotifyAll();
    }
  }

  Clock& clock;
  mutable Mutex mutex;
  CondVar changed;
  std::deque<std::packaged_task<void()>> tasks GUARDED_BY(mutex);
  bool is_working GUARDED_BY(mutex) = false;
  bool is_ending GUARDED_BY(mutex) = false;
  Clock::TimePoint began GUARDED_BY(mutex);  // of the current work
  uint64_t num_posted GUARDED_BY(mutex) = 0;
  uint64_t num_done GUARDED_BY(mutex) = 0;
  std::thread thread;  // of the owner
};

DiskQueue::DiskQueue(std::string thread_name, Clock& clock)
    : state_(std::make_shared<State>(clock)) {
  state_->thread = std::thread([state = state_, name = std::move(thread_name)] {
    SetThreadName(name);
    state->Run();
  });
}

DiskQueue::~DiskQueue() {
  {
    MutexLock lock(state_->mutex);
    state_->is_ending = true;
    state_->changed.NotifyAll();
  }
  std::thread thread = std::move(state_->thread);
  if (Await(kEndPatience)) {
    thread.join();
    return;
  }
  spdlog::error(
      "the disk has delayed a write for {:.0f} s; the write is left unfinished",
      WaitSeconds());
  thread.detach();
}

std::future<void> DiskQueue::Post(std::function<void()> work) {
  std::packaged_task<void()> task(std::move(work));
  std::future<void> future = task.get_future();
  MutexLock lock(state_->mutex);
  state_->tasks.push_back(std::move(task));
  ++state_->num_posted;
  state_->changed.NotifyAll();
  return future;
}

bool DiskQueue::Await(Clock::Duration timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(state_->mutex);
  const uint64_t goal = state_->num_posted;
  while (state_->num_done < goal) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    state_->changed.WaitUntil(state_->mutex, deadline);
  }
  return true;
}

double DiskQueue::WaitSeconds() const {
  MutexLock lock(state_->mutex);
  return state_->is_working ? ToSeconds(state_->clock.Now() - state_->began)
                            : 0.0;
}

std::future<void> PostOrRun(DiskQueue* queue, std::function<void()> work) {
  if (queue != nullptr) return queue->Post(std::move(work));
  std::packaged_task<void()> task(std::move(work));
  task();
  return task.get_future();
}

bool IsDone(const std::future<void>& future) {
  return future.valid() &&
         future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace replicant
