#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "env/environment.h"

namespace replicant::env {

struct VectorOptions {
  // Threads that step environments; 0: the caller's thread steps them.
  int threads = 0;
};

// Output buffers of a batch of E environments; row i belongs to environment i.
// A span is empty (not wanted) or holds all rows.
struct BatchBuffer {
  std::span<double> state;    // [E, state size]
  std::span<uint8_t> pixels;  // [E, pixels size]
  std::span<uint8_t> frames;  // [E, frame size], the newest of each stack
  std::span<TimeStep> steps;  // [E]; always wanted
};

// E environments with equal specs, stepped together on T threads.
//
// Synchronous: Reset() and Step() act on all environments and return when all
// are done; the caller's thread is one of the T (base/parallel.h), and a task
// of one's own must not begin another parallel loop. Asynchronous: Send() gives
// actions to some and Receive() returns finished ones while the others
// continue, so that one half can be simulated and rendered while the policy
// runs for the other half. Both modes may be mixed when no environment is under
// way.
//
// Results do not depend on the number of threads. After the end of its episode,
// an environment starts the next one with its next step, as in Environment.
//
// An environment's exception (a renderer without a device, say) is kept and
// thrown by the call that would have returned the environment. It ends the
// episode: the environment's element of `steps` is a last one.
//
// Thread-safety: one thread at a time calls the methods.
class VectorEnvironment {
 public:
  // Throws InvalidArgument unless there is at least one environment, all specs
  // are equal and `threads` >= 0.
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
  // Sums over the environments. Call it when no environment is under way.
  EnvironmentCounters counters() const;

  // Starts an episode in every environment.
  void Reset(const BatchBuffer& out);

  // Environment `id`, for renderers; it must not be under way.
  Environment& environment(int id) {
    return *environments_.at(static_cast<size_t>(id));
  }

  // Calls Environment::SeekEpisode() of environment `id`, which must not be
  // under way.
  void SeekEpisode(int id, int64_t episode) {
    environments_.at(static_cast<size_t>(id))->SeekEpisode(episode);
  }

  // Makes a step in every environment; `actions` is [E, action size]. Throws
  // InvalidArgument, before any environment changes, for wrong sizes and
  // actions that are not finite.
  void Step(std::span<const double> actions, const BatchBuffer& out);

  // Starts a step in the environments `ids` (none under way, none twice) and
  // returns at once. Row k of `actions` [ids.size(), action size] is for
  // ids[k]. `out` covers the whole batch, as for Step(), and must live until
  // the environments are received. Throws as Step() does.
  void Send(std::span<const int> ids, std::span<const double> actions,
            const BatchBuffer& out);

  // Starts an episode in the environments `ids`; otherwise as Send().
  void SendReset(std::span<const int> ids, const BatchBuffer& out);

  // Waits until `ids.size()` environments are done and writes their ids; they
  // are no longer under way. Throws InvalidArgument if fewer are under way.
  void Receive(std::span<int> ids);

  // Environments sent and not received.
  int num_under_way() const { return num_under_way_; }

 private:
  enum class Call { kReset, kStep };
  // Buffers of one environment for its next call.
  struct Job {
    Call call = Call::kStep;
    ObservationBuffer out;
    TimeStep* step = nullptr;
    std::exception_ptr exception;
  };

  void CheckBatch(const BatchBuffer& out) const;
  void CheckActions(size_t count, std::span<const double> actions) const;
  // Throws InvalidArgument unless all exist, are idle and appear once.
  void CheckIds(std::span<const int> ids) const;
  // Sets the environment's next call, and announces its action.
  void Prepare(int id, Call call, const BatchBuffer& out);
  // Queues the environments for the threads of the asynchronous mode, and
  // steps them at once if there are none.
  void Submit(std::span<const int> ids) EXCLUDES(mutex_);
  void StartThreads();
  void RunJob(int id);
  // Throws the exception of one of the environments, and forgets all of them.
  void ThrowFailureOf(std::span<const int> ids);
  // Steps shares of the queue until it is empty or, if the thread waits for
  // work, until it should end.
  void Work(bool waits) EXCLUDES(mutex_);
  bool TakeShare(std::vector<int>& share, bool waits) EXCLUDES(mutex_);
  void HandBack(std::span<const int> ids) EXCLUDES(mutex_);
  void RunAll(Call call, const BatchBuffer& out);

  std::vector<std::unique_ptr<Environment>> environments_;
  const size_t action_size_;
  const size_t state_size_;
  const size_t pixels_size_;
  const size_t frame_size_;
  // Row i belongs to environment i. The caller writes it before queueing the
  // environment, then the worker does, and the caller reads it at the end.
  std::vector<double> actions_;
  std::vector<Job> jobs_;
  std::vector<int> all_ids_;  // 0, 1, ... E - 1
  std::vector<bool> is_under_way_;
  int num_under_way_ = 0;

  mutable Mutex mutex_;
  CondVar work_arrived_;
  CondVar work_done_;
  // Environments to step, first in first out, and finished ones. Both have
  // space for all environments; an environment is in at most one of them.
  std::vector<int> queue_ GUARDED_BY(mutex_);
  std::vector<int> done_ GUARDED_BY(mutex_);
  // Number of environments that Receive() waits for; 0: no wait.
  size_t wanted_ GUARDED_BY(mutex_) = 0;
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  const int num_threads_;
  // Of the asynchronous mode, from its first call on. Last, so that they end
  // before the members that they use.
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace replicant::env
