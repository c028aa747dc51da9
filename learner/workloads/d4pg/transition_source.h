#pragma once

#include <span>
#include <string>

#include "core/base/clock.h"
#include "replay/batch_reader.h"

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

 private:
  replay::BatchReader reader_;
};

}  // namespace replicant::learner
