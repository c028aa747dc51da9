#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "core/base/clock.h"
#include "replay/client/batch.h"
#include "replay/client/checkpoint_state.h"

namespace replicant::replay {

// The result of drawing a batch.
enum class [[nodiscard]] ReadResult{
    kOk, kTimeout, kClosed,
    // The source is paused, and every batch that was under way has been given.
    kPaused};

// Gives batches of items and takes their new priorities: BatchReader draws from
// replay services, a run in lockstep from a replay of its own process.
//
// Thread-safety: one thread at a time, unless an implementation allows more.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Swaps the next batch with `batch` and uses the memory of the old one again.
  // Leaves `batch` alone unless the result is kOk.
  virtual ReadResult Next(Clock::TimePoint deadline, Batch* batch) = 0;
  // Whether Next() may be called for a batch before UpdatePriorities() for the
  // one before: not where that changes what the run computes.
  virtual bool CanReadAhead() const { return false; }
  // Gives each item of `batch` a new priority. Throws InvalidArgument if one is
  // negative or not finite, or if there is not one for each item.
  virtual void UpdatePriorities(const Batch& batch,
                                std::span<const float> priorities) = 0;

  // Next() gives at most `num_batches` more, then kPaused. The source fetches
  // no batch beyond them. By default there is no limit.
  virtual void SetLimit(int64_t /*num_batches*/) {}
  // A paused source asks for no new batch: Next() gives the batches that are
  // under way, then kPaused.
  virtual void SetPaused(bool is_paused) = 0;

  // Starts checkpoint `id` of the replay and forgets the one before. The
  // checkpoint holds every priority given before this call and none given
  // later. `folder` takes what has no other place. Does not wait for the disk.
  virtual void StartCheckpoint(uint64_t id,
                               const std::filesystem::path& folder) = 0;
  // Returns the state of the checkpoint that was started last. Throws CommError
  // with the reason if it cannot be saved or is not saved in time.
  virtual CheckpointState PollCheckpoint() = 0;
};

}  // namespace replicant::replay
