#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "replay/client/batch.h"
#include "replay/client/checkpoint_state.h"

namespace replicant::replay {

// The result of drawing a batch.
enum class [[nodiscard]] ReadResult{
    kOk, kTimeout, kClosed,
    // The source is paused, and has returned every batch under way.
    kPaused};

// Draws batches of items and takes their new priorities. BatchReader draws from
// replay services, a lockstep run from a replay in its own process.
//
// Thread-safety: one thread at a time, unless an implementation allows more.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Swaps the next batch with `batch` and reuses the old one's memory. Leaves
  // `batch` unchanged unless the result is kOk.
  virtual ReadResult Next(Clock::TimePoint deadline, Batch* batch) = 0;
  // Whether Next() may be called before UpdatePriorities() for the previous
  // batch; false if that would change the run's results.
  virtual bool CanReadAhead() const { return false; }
  // Sets a new priority for each item of `batch`. Throws InvalidArgument if one
  // is negative or not finite, or if their number differs.
  virtual void UpdatePriorities(const Batch& batch,
                                std::span<const float> priorities) = 0;

  // Sets the steps that services lost before this source was made: batches
  // count them from now on. Without effect on a source that loses none.
  virtual void SetLostSteps(int64_t /*num_steps*/) {}

  // Figures of the source by name, for the learner's curves.
  virtual std::vector<std::pair<std::string, double>> Scalars() const {
    return {};
  }

  // Next() returns at most `num_batches` more batches, then kPaused. The source
  // fetches none beyond them. By default there is no limit.
  virtual void SetLimit(int64_t /*num_batches*/) {}
  // A paused source requests no new batch: Next() returns the batches under
  // way, then kPaused.
  virtual void SetPaused(bool is_paused) = 0;

  // Starts checkpoint `id` of the replay and forgets the previous one. The
  // checkpoint holds every priority set before this call and none set later.
  // Parts that are stored nowhere else go to `folder`. Does not wait for the
  // disk.
  virtual void StartCheckpoint(uint64_t id,
                               const std::filesystem::path& folder) = 0;
  // Restores the parts that StartCheckpoint() wrote to `folder`, unless their
  // owner restores them itself.
  virtual void RestoreParts(const std::filesystem::path& /*folder*/) {}
  // Returns the state of the checkpoint started last. Throws CommError with the
  // reason if it cannot be saved, or not in time.
  virtual CheckpointState PollCheckpoint() = 0;
};

}  // namespace replicant::replay
