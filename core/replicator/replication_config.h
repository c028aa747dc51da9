#pragma once

#include <string>

#include "core/config/reader.h"
#include "core/tensor/dtype.h"

namespace replicant::replicator {

enum class Strategy {
  kSingle,        // one replica
  kInGraph,       // replicas in this process, on groups of its processors
  kBetweenGraph,  // one replica in each process that mpirun starts
};

// Section `learner.replication`: on what and how a step runs.
struct ReplicationConfig {
  Strategy strategy = Strategy::kSingle;
  // Of all processes together.
  int replicas = 1;
  // "cpu", "cuda", "reference"
  std::string backend = "cpu";
  // Devices among which the ops of one replica are divided: on the CPU groups
  // of processors.
  int logical_devices = 1;
  // Of one logical device, on the CPU.
  int threads = 1;
  // Batches of one update: every replica adds up their gradients, which are
  // reduced once.
  int accumulation_steps = 1;
  // As what f32 gradients travel between replicas: kF32 or kBF16.
  DType wire = DType::kF32;
  // Gradients are reduced as soon as so many MiB of them are there.
  int bucket_mib = 4;
  // For how long replicas wait for one that does not come.
  double timeout_s = 300.0;

  static ReplicationConfig Read(config::Reader& reader);
};

}  // namespace replicant::replicator
