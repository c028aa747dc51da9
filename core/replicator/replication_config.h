#pragma once

#include <string>

#include "core/config/reader.h"

namespace replicant::replicator {

enum class Strategy { kSingle };

// Section `learner.replication`: on what and how a step runs.
struct ReplicationConfig {
  Strategy strategy = Strategy::kSingle;
  // "cpu", "cuda", "reference"
  std::string backend = "cpu";
  // Of one replica, on the CPU.
  int threads = 1;

  static ReplicationConfig Read(config::Reader& reader);
};

}  // namespace replicant::replicator
