#pragma once

#include <cstdint>
#include <filesystem>

namespace replicant::replay {

// Returns the folder of shard `index` of `num_shards` below `folder`: "shard-1
// of 3" is FOLDER/shard-1-of-3, the only one of a single service FOLDER itself.
// The name holds the number of shards, so that a folder says what it is part
// of.
std::filesystem::path ShardFolder(const std::filesystem::path& folder,
                                  int64_t index, int64_t num_shards);

// Throws ConfigError, naming both numbers, if `folder` holds checkpoints of
// another number of shards: an item would be in no shard, or in two. Changes
// nothing. A folder that does not exist holds none.
void CheckNumShards(const std::filesystem::path& folder, int64_t num_shards);

}  // namespace replicant::replay
