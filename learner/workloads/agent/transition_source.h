#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/base/clock.h"
#include "learner/workload.h"
#include "replay/client/batch_reader.h"

namespace replicant::learner {

// Where the D4PG learner draws its transitions: replay services, or a table in
// the same process.
//
// Thread-safety: one thread at a time.
class TransitionSource {
 public:
  virtual ~TransitionSource() = default;

  // Swaps the next batch with `batch`, whose memory is used again.
  virtual replay::ReadResult Next(Clock::TimePoint deadline,
                                  replay::Batch* batch) = 0;
  // New priorities of the items of `batch`, one each.
  virtual void UpdatePriorities(const replay::Batch& batch,
                                std::span<const float> priorities) = 0;

  // --- checkpoints, as Workload has them ---

  virtual void SetLimit(int64_t /*num_batches*/) {}
  // While it is paused, Next() gives the batches that are under way and then
  // kPaused.
  virtual void SetPaused(bool is_paused) = 0;
  virtual void StartCheckpoint(uint64_t id,
                               const std::filesystem::path& folder) = 0;
  virtual InputPart PollCheckpoint() = 0;
};

// Replay services over the network.
class RemoteTransitions : public TransitionSource {
 public:
  // Throws as replay::BatchReader's constructor does.
  explicit RemoteTransitions(replay::BatchReaderOptions options)
      : reader_(std::move(options)) {}

  replay::ReadResult Next(Clock::TimePoint deadline,
                          replay::Batch* batch) override {
    return reader_.Next(deadline, batch);
  }
  void UpdatePriorities(const replay::Batch& batch,
                        std::span<const float> priorities) override {
    reader_.UpdatePriorities(batch, priorities);
  }
  void SetLimit(int64_t num_batches) override { reader_.SetLimit(num_batches); }
  void SetPaused(bool is_paused) override { reader_.SetPaused(is_paused); }
  // Every service writes one, in its own folder.
  void StartCheckpoint(uint64_t id,
                       const std::filesystem::path& folder) override;
  InputPart PollCheckpoint() override;

 private:
  replay::BatchReader reader_;
};

}  // namespace replicant::learner
