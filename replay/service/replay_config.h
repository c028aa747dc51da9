#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/config/reader.h"
#include "base/rpc/curve.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/table/shard.h"

namespace replicant::replay {

// Maximum number of services of a run.
inline constexpr int64_t kMaxShards = 256;

// An element of section `replay.tables`.
struct TableSection {
  TableConfig table;  // without its name

  static TableSection Read(config::Reader& reader);
};

// Section `replay`: the replay of a run, one service or several shards.
struct ReplayConfig {
  // Number of services. Sizes, memory and rate limiters of this section are
  // totals; OfShard() gives each service its share.
  int64_t shards = 1;
  std::string bind = "auto";
  // Addresses of the shards if there are several; empty: derived from
  // `bind`.
  std::vector<std::string> shard_binds = {};
  std::string metrics_address;  // empty: none
  StepShape shape;
  bool has_float_rows = false;
  std::map<std::string, TableSection> tables;  // none: one called "default"
  // Folder of the prior data that the learner of a run holds; empty: none. The
  // service does not read it.
  std::string prior_folder;
  RateLimiterLimits limits;
  int64_t max_bytes = int64_t{1} << 33;
  DiskTierConfig disk;
  int64_t credits = 64;
  bool shared_memory = true;
  int64_t encode_threads = 2;
  double peer_timeout_s = 10.0;
  int64_t seed = 0;

  std::string checkpoint_folder;  // empty: none
  Durability durability = Durability::kCheckpoint;
  double checkpoint_interval_s = 300.0;  // 0: only at the end
  int64_t num_kept_checkpoints = 2;
  int64_t restore_checkpoint = 0;  // 0: the newest

  std::string key_file;  // empty: no encryption
  std::string allowed_clients_file;

  static ReplayConfig Read(config::Reader& reader);

  // Makes the configuration of a service that holds everything.
  ShardConfig MakeShardConfig() const;

  // Returns the section of shard `index` alone: its address, its folders and
  // port for metrics, and 1/shards of sizes, memory and limits, rounded up.
  // Priorities fade by base^shards, since a shard sees 1/shards of the inserts.
  //
  // The rate limiter acts in each shard. For `ratio` the errors of the shards
  // (replay/table/rate_limiter.h) sum to the error of one table, because each
  // shard has 1/shards of min_size_to_sample, and 1/shards of error_buffer
  // bounds that sum by error_buffer.
  ReplayConfig OfShard(int64_t index) const;
  // The addresses of the shards, by index.
  std::vector<std::string> Endpoints() const;
};

}  // namespace replicant::replay
