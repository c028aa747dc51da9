#pragma once

#include <cstdlib>

#include "replicator/replication_config.h"

namespace replicant::testing {

// Replicas on devices of XLA's plugin for the CPU, which is built for tests and
// found by CMake (PJRT_CPU_PLUGIN).
inline replicator::ReplicationConfig CpuPluginConfig(int replicas) {
  using replicator::Strategy;
  // a step compiles in half the time; XLA reads it when the plugin is loaded
  setenv("XLA_FLAGS",
         "--xla_backend_optimization_level=0 "
         "--xla_llvm_disable_expensive_passes=true",
         /*overwrite=*/0);
  return {.strategy = replicas > 1 ? &Strategy::kInGraph : &Strategy::kSingle,
          .replicas = replicas,
          .backend = "pjrt",
          // so many for all tests of a process: the plugin takes the number
          // once
          .pjrt = {.plugin = REPLICANT_PJRT_CPU_PLUGIN,
                   .options = {"cpu_device_count=8"}}};
}

}  // namespace replicant::testing
