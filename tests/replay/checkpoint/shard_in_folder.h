#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/format/chunk_format.h"
#include "replay/table/shard.h"

// A small shard that saves its state in a folder.
namespace replicant::replay::testing {

inline constexpr StepShape kShape = {.observation_bytes = 8, .action_bytes = 4};

inline ShardConfig Config() {
  ShardConfig config;
  config.shape = kShape;
  config.tables = {{.name = "t",
                    .max_size = 50,
                    .n_step = {.n_step = 2},
                    .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                                     .min_size_to_sample = 1}}};
  return config;
}

// `num_steps` steps; ends the episode unless it is to go on.
inline std::vector<std::byte> Steps(uint64_t episode, int64_t first_step,
                                    int64_t num_steps, bool ends) {
  ChunkBuilder builder(kShape, episode, first_step);
  const std::vector<std::byte> row(8, static_cast<std::byte>(episode));
  for (int64_t i = 0; i < num_steps; ++i) {
    builder.AddStep(row, std::span(row).first(4), 1.0f, 1.0f);
  }
  if (ends) builder.AddLastObservation(row);
  return builder.Finish({});
}

// A shard and its folder, as one process has them.
struct ShardInFolder {
  explicit ShardInFolder(const std::filesystem::path& folder,
                         Durability durability = Durability::kCheckpoint,
                         const ShardConfig& config = Config())
      : shard(config, &clock),
        checkpointer(
            {.folder = folder, .durability = durability, .segment_bytes = 2000},
            &shard) {}
  InsertResult Insert(uint64_t sequence, int64_t num_steps = 3) {
    return shard.TryInsert(1, sequence, Steps(sequence, 0, num_steps, true));
  }
  int64_t size() const { return shard.Status().tables[0].size; }

  FakeClock clock;
  Shard shard;
  Checkpointer checkpointer;
};

inline std::vector<SampledItem> Draw(Shard& shard, int64_t count) {
  SampledBatch batch;
  EXPECT_EQ(shard.TrySample(0, count, "test", &batch), count);
  return batch.items;
}

inline void WriteBytes(const std::filesystem::path& path,
                       const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace replicant::replay::testing
