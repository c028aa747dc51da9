#pragma once

#include "core/replicator/replication_config.h"

namespace replicant::testing {

// Replicas on devices of XLA's plugin for the CPU, which is built for tests and
// found by CMake (PJRT_CPU_PLUGIN).
inline replicator::ReplicationConfig CpuPluginConfig(int replicas) {
  using replicator::Strategy;
  return {.strategy = replicas > 1 ? &Strategy::kInGraph : &Strategy::kSingle,
          .replicas = replicas,
          .backend = "pjrt",
          // so many for all tests of a process: the plugin takes the number
          // once
          .pjrt = {.plugin = REPLICANT_PJRT_CPU_PLUGIN,
                   .options = {"cpu_device_count=8"}}};
}

}  // namespace replicant::testing
