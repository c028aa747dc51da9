#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/table/shard.h"

namespace replicant::replay {

// Status of a service's checkpoints.
struct CheckpointStatus {
  uint64_t last_number = 0;     // of the last one saved or restored; 0: none
  std::optional<double> age_s;  // since this process saved one
  int64_t failures = 0;
  std::string last_problem;  // "" if the last one was saved
};

// Writes checkpoints in its own thread, one after the other. A checkpoint holds
// the shard as it was at Start(); the caller continues while the thread writes.
//
// Thread-safety: all methods may be called from any thread.
class CheckpointSaver {
 public:
  // Called in the saver's thread: with "" once the checkpoint is on disk, or
  // with the reason for its failure.
  using Done = std::function<void(const std::string& problem)>;

  // Both outlive this object.
  CheckpointSaver(Shard* shard, Checkpointer* checkpointer);
  // Writes all queued snapshots.
  ~CheckpointSaver() { Finish(); }
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Takes the snapshot now and queues it; `id` is as for Checkpointer::Save().
  // Returns false and does nothing after Finish(), or if kMaxWaiting snapshots
  // are queued already: each of them holds memory.
  [[nodiscard]] bool Start(uint64_t id, Done done) EXCLUDES(mutex_);
  // Waits until all queued snapshots are written, and ends the thread.
  void Finish() EXCLUDES(mutex_);

  CheckpointStatus Status() const EXCLUDES(mutex_);

  static constexpr size_t kMaxWaiting = 2;

 private:
  struct Job {
    ShardSnapshot snapshot;
    uint64_t id = 0;
    Done done;
  };
  void Run();
  // Returns "" or the problem.
  std::string Save(const Job& job);

  Shard* const shard_;
  Checkpointer* const checkpointer_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Job> jobs_ GUARDED_BY(mutex_);
  bool is_finished_ GUARDED_BY(mutex_) = false;
  std::optional<Clock::TimePoint> last_save_ GUARDED_BY(mutex_);
  int64_t failures_ GUARDED_BY(mutex_) = 0;
  std::string last_problem_ GUARDED_BY(mutex_);
  Thread thread_;  // last: it uses all of the above
};

}  // namespace replicant::replay
