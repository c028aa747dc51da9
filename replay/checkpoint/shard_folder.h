#pragma once

#include <cstdint>
#include <filesystem>

namespace replicant::replay {

// Returns the folder of shard `index` of `num_shards` below `folder`: shard 1
// of 3 has FOLDER/shard-1-of-3; a single service has FOLDER itself. The name
// includes the number of shards, so that a folder identifies its replay's
// layout.
std::filesystem::path ShardFolder(const std::filesystem::path& folder,
                                  int64_t index, int64_t num_shards);

// Throws ConfigError, naming both numbers, if `folder` holds checkpoints of a
// different number of shards: items would be lost or duplicated. Changes
// nothing. A missing folder holds no checkpoints.
void CheckNumShards(const std::filesystem::path& folder, int64_t num_shards);

}  // namespace replicant::replay
