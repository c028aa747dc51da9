#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/disk_queue.h"
#include "replay/client/batch_source.h"
#include "replay/client/importance_weights.h"
#include "replay/prior/prior_replay.h"

namespace replicant::replay {

struct MixedSourceOptions {
  int64_t batch_size = 0;
  // Rows of a batch that come from the prior data: its last ones, at least 1.
  int64_t prior_rows = 0;
  // The first batches that are prior data alone.
  int64_t offline_batches = 0;
  ImportanceSchedule importance = {};  // exponents in [0, 1]
  // Writes the checkpoints; null: StartCheckpoint() waits for the disk.
  // Outlives the source.
  DiskQueue* disk = nullptr;
};

// Batches of two tables: the first rows are acted, the last ones prior data.
// Each part has the priorities and the importance weights of its own table,
// the largest weight of each is 1. The acted source, with its rate limiter,
// counts its own rows alone.
//
// The first `offline_batches` batches are prior data alone; the acted source
// is paused meanwhile. If every row is prior data, it stays so.
//
// A checkpoint's folder gets the prior data's priorities and position, as
// checkpoint file kStateNumber (replay/checkpoint/checkpoint_file.h). The steps
// stay in the prior data's folder.
//
// Thread-safety: one thread at a time.
class MixedSource : public BatchSource {
 public:
  static constexpr uint64_t kStateNumber = 1;

  // `acted` gives batches of batch_size - prior_rows rows, and outlives this
  // object. Throws InvalidArgument if prior_rows is outside [1, batch_size].
  MixedSource(BatchSource* acted, std::unique_ptr<PriorReplay> prior,
              const MixedSourceOptions& options);

  ReadResult Next(Clock::TimePoint deadline, Batch* batch) override;
  bool CanReadAhead() const override {
    return !IsOffline() && acted_.CanReadAhead();
  }
  void UpdatePriorities(const Batch& batch,
                        std::span<const float> priorities) override;
  std::vector<std::pair<std::string, double>> Scalars() const override {
    return acted_.Scalars();
  }
  void SetLimit(int64_t num_batches) override;
  void SetLostSteps(int64_t num_steps) override {
    acted_.SetLostSteps(num_steps);
  }
  void SetPaused(bool is_paused) override;
  void StartCheckpoint(uint64_t id,
                       const std::filesystem::path& folder) override;
  // Throws IoError if the prior data's part was not written.
  CheckpointState PollCheckpoint() override;
  // Restores the prior data's part. A folder without one, of a run that began
  // without prior data, changes nothing.
  void RestoreParts(const std::filesystem::path& folder) override;

  // Why the part that a checkpoint has in `folder` cannot be read; "" if it
  // can, or if there is none.
  static std::string FindDamage(const std::filesystem::path& folder);

  // Whether the next batch is prior data alone.
  bool IsOffline() const;

 private:
  ReadResult NextActed(Clock::TimePoint deadline);
  // Moves the acted batch to the first rows of `batch`, which has room.
  void TakeActed(Batch* batch);

  BatchSource& acted_;
  const std::unique_ptr<PriorReplay> prior_;
  const MixedSourceOptions options_;
  Batch drawn_;  // by the acted source
  int64_t total_steps_ = 0;
  int64_t num_wanted_ = std::numeric_limits<int64_t>::max();
  bool is_paused_ = false;
  bool is_acted_paused_ = false;
  std::future<void> writing_;  // of the checkpoint under way
};

}  // namespace replicant::replay
