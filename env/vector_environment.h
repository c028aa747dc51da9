#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/thread.h"
#include "env/environment.h"

namespace replicant::env {

struct VectorOptions {
  // Threads that step environments; 0 to step in the caller's thread.
  int threads = 0;
  // The processors of each thread, taken in turn; empty for no restriction.
  std::vector<CpuSet> cpus;
};

// Where a batch of E environments writes: row i belongs to environment i. A
// span is empty (not wanted) or holds all rows.
struct BatchBuffer {
  std::span<double> state;    // [E, state size]
  std::span<uint8_t> pixels;  // [E, pixels size]
  std::span<TimeStep> steps;  // [E]; always wanted
};

// E environments of equal specs, stepped together on T threads.
//
// Synchronous: Reset() and Step() work on all and return when all are done.
// Asynchronous: Send() gives actions to some, Receive() hands out those that
// are done; the others go on meanwhile, so that one half can be simulated and
// rendered while the policy runs for the other half. The two may be mixed when
// nothing is under way.
//
// An environment's results do not depend on the number of threads. One whose
// episode is over starts the next one with its next step, as Environment says.
//
// An exception from an environment (a renderer without a device, say) is kept
// and thrown by the call that would have returned it.
//
// Thread-safety: one thread at a time calls the methods.
class VectorEnvironment {
 public:
  // Throws InvalidArgument unless there is at least one environment, all have
  // equal specs, and `threads` >= 0; or if the processors cannot be had.
  VectorEnvironment(std::vector<std::unique_ptr<Environment>> environments,
                    const VectorOptions& options);
  ~VectorEnvironment();
  VectorEnvironment(const VectorEnvironment&) = delete;
  VectorEnvironment& operator=(const VectorEnvironment&) = delete;

  int size() const { return static_cast<int>(environments_.size()); }
  const ObservationSpec& observation_spec() const {
    return environments_[0]->observation_spec();
  }
  const ActionSpec& action_spec() const {
    return environments_[0]->action_spec();
  }
  // Sums over the environments. Call it when nothing is under way.
  EnvironmentCounters counters() const;

  // Starts an episode in every environment.
  void Reset(const BatchBuffer& out);

  // Environment::StartOver() of environment `id`, which is not under way.
  void StartOver(int id, int64_t episode) {
    environments_.at(static_cast<size_t>(id))->StartOver(episode);
  }

  // Makes a step in every environment; `actions` is [E, action size].
  // Throws InvalidArgument, before any has moved, for wrong sizes and for
  // actions that are not finite.
  void Step(std::span<const double> actions, const BatchBuffer& out);

  // Starts a step in the environments `ids` (none under way, no repetition);
  // row k of `actions` [ids.size(), action size] is for ids[k]. Returns at
  // once. `out` is of the whole batch, as for Step(); it must stay until the
  // environments were received. Throws as Step() does.
  void Send(std::span<const int> ids, std::span<const double> actions,
            const BatchBuffer& out);

  // Waits until `ids.size()` environments are done and writes which; they are
  // no longer under way then. Throws InvalidArgument if fewer are under way.
  void Receive(std::span<int> ids);

  // Environments sent and not received.
  int num_under_way() const { return num_under_way_; }

 private:
  enum class Call { kReset, kStep };
  // Buffers of one environment for the call that it is about to make.
  struct Job {
    Call call = Call::kStep;
    ObservationBuffer out;
    TimeStep* step = nullptr;
    std::exception_ptr exception;
  };

  void CheckBatch(const BatchBuffer& out) const;
  void CheckActions(size_t count, std::span<const double> actions) const;
  void Prepare(int id, Call call, const BatchBuffer& out);
  void Submit(std::span<const int> ids);
  void RunJob(int id);
  // What a thread does.
  void Work();
  // Waits for work; false when it is time to end.
  bool TakeShare(std::vector<int>& share) EXCLUDES(mutex_);
  void HandBack(std::span<const int> ids) EXCLUDES(mutex_);
  void RunAll(Call call, const BatchBuffer& out);

  std::vector<std::unique_ptr<Environment>> environments_;
  const size_t action_size_;
  const size_t state_size_;
  const size_t pixels_size_;
  // Row i belongs to environment i: written by the caller before it is queued,
  // then by the worker, and read again by the caller after it is done.
  std::vector<double> actions_;
  std::vector<Job> jobs_;
  // 0, 1, ... E - 1, and scratch of the same size.
  std::vector<int> all_ids_;
  std::vector<int> received_;
  std::vector<bool> is_under_way_;
  int num_under_way_ = 0;

  mutable Mutex mutex_;
  CondVar work_arrived_;
  CondVar work_done_;
  // Environments to be stepped, first in first out, and those that were; both
  // have room for all, and an environment is in one of them at most.
  std::vector<int> queue_ GUARDED_BY(mutex_);
  std::vector<int> done_ GUARDED_BY(mutex_);
  // What Receive() waits for; 0 if it does not wait.
  size_t wanted_ GUARDED_BY(mutex_) = 0;
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  size_t num_threads_ = 0;
  // last, so that they end before what they use is destroyed
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace replicant::env
