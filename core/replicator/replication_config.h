#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config/reader.h"
#include "core/tensor/dtype.h"

namespace replicant::replicator {

enum class Strategy {
  kSingle,           // one replica
  kInGraph,          // replicas in this process, on groups of its processors
  kBetweenGraph,     // replicas in each process that mpirun starts
  kHogwild,          // replicas in this process, on the same variables
  kParameterServer,  // groups of replicas, on variables that servers hold
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
  // between_graph: in each process that mpirun starts.
  int replicas_per_process = 1;
  // between_graph: how often a process tells that it lives, and after how long
  // a silence the others end; 0: nobody watches.
  double heartbeat_interval_s = 0.2;
  double heartbeat_timeout_s = 10.0;

  // parameter_server: addresses of the servers, one each.
  std::vector<std::string> servers = {"tcp://127.0.0.1:7003"};
  // parameter_server: replicas that make their steps together, in one process.
  int replicas_per_group = 1;
  // parameter_server: how many versions a gradient may be behind.
  int64_t staleness = 4;
  double server_checkpoint_interval_s = 10.0;

  // That share a batch.
  int replicas_of_group() const;
  // That have batches of their own.
  int num_groups() const { return replicas / replicas_of_group(); }

  static ReplicationConfig Read(config::Reader& reader);
};

}  // namespace replicant::replicator
