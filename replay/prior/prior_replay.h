#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "replay/client/batch.h"
#include "replay/format/frame_codec.h"
#include "replay/table/shard.h"

namespace replicant::replay {

struct PriorOptions {
  // Checkpoints of a replay: of `replicant data import`, or of another run.
  std::filesystem::path folder;
  StepShape shape;
  // Sampler, priorities and items: those of the acted table. Its sizes, fade
  // and rate limiter count for nothing here.
  TableConfig table;
  uint64_t seed = 0;
};

// Throws IoError if the folder holds no replay, InvalidArgument, naming both
// shapes, if its steps have another one. Reads no steps.
void CheckPrior(const std::filesystem::path& folder, const StepShape& shape);

// What a folder of prior data holds.
struct PriorSummary {
  int64_t num_episodes = 0;  // with their end
  int64_t num_terminated = 0;
  int64_t num_steps = 0;
  // Parts of episodes that are left out, with what follows in their episodes:
  // they hold numbers that are not finite.
  int64_t num_left_out = 0;
  float least_reward = 0.0F, largest_reward = 0.0F;
  double mean_reward = 0.0;
};
// Reads all of the newest checkpoint. Throws as CheckPrior() does, and IoError
// for a damaged step.
PriorSummary SummarizePrior(const std::filesystem::path& folder,
                            const StepShape& shape);

// The steps of an earlier replay, in memory, as a table of their own: items,
// draws and priorities as in a service, and no rate limiter, since nobody
// acts. The items are made anew, so n_step, discount, stack and window are the
// run's, whatever the folder's replay had.
//
// Thread-safety: one thread at a time.
class PriorReplay {
 public:
  // Reads the newest checkpoint, and warns of what is left out. Throws as
  // SummarizePrior() does, and InvalidArgument if it makes no item.
  explicit PriorReplay(PriorOptions options);

  // Draws items for the rows [first_row, first_row + count) of `batch`, whose
  // buffers and vectors have room for them; frames stay compressed. The rows'
  // shard is Batch::kPriorShard; their importance weights are those of a batch
  // of their own.
  void Draw(int64_t first_row, int64_t count, double importance_exponent,
            Batch* batch);
  // Throws like Table::UpdatePriorities().
  void UpdatePriorities(std::span<const ItemKey> keys,
                        std::span<const float> priorities);

  BatchForm form() const { return config_.tables[0].n_step.form(); }
  const StepShape& shape() const { return options_.shape; }
  // Items drawn so far, of all resumes.
  int64_t num_samples() const { return num_samples_; }

  // The priorities, the counts and the position of the random stream; not the
  // steps, which the folder keeps.
  std::vector<std::byte> State() const;
  // Continues from State(). Throws IoError if the folder's steps are others
  // than those of the state.
  void Restore(std::span<const std::byte> state);

 private:
  const PriorOptions options_;
  ShardConfig config_;
  std::unique_ptr<Shard> shard_;
  int64_t num_samples_ = 0;
};

}  // namespace replicant::replay
