#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/config/reader.h"
#include "core/rpc/curve.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/table/shard.h"

namespace replicant::replay {

// An element of section `replay.tables`.
struct TableSection {
  TableConfig table;  // without its name

  static TableSection Read(config::Reader& reader);
};

// Section `replay`: one replay service.
struct ReplayConfig {
  std::string bind = "auto";
  std::string metrics_address;  // empty: none
  StepShape shape;
  std::map<std::string, TableSection> tables;  // none: one called "default"
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

  // Makes the configuration of the shard.
  ShardConfig MakeShardConfig() const;
};

}  // namespace replicant::replay
