#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/config/reader.h"
#include "engine/graph/passes/passes.h"
#include "replay/client/importance_weights.h"
#include "replay/client/kept_frames.h"
#include "replicator/replication_config.h"

namespace replicant::learner {

// When a training ends; 0 means no such limit.
struct LimitsConfig {
  int64_t max_steps = 0;
  double max_seconds = 0.0;  // of the run, waiting included
  int64_t max_frames = 0;    // environment frames
  double max_epochs = 0.0;   // passes over the training images

  static LimitsConfig Read(config::Reader& reader);
};

// The shares of the tables in a batch.
struct BatchSharesConfig {
  double prior = 0.5;  // of replay.prior; the rest is acted
  // of what is acted: 1 - prior; none: as prior leaves it
  std::optional<double> acted;

  static BatchSharesConfig Read(config::Reader& reader);
};

// Section `learner`: the loop around a workload.
struct LearnerConfig {
  std::string workload = "d4pg";
  int64_t batch_size = 256;               // of one step
  replay::ImportanceSchedule importance;  // of an agent's samples
  BatchSharesConfig batch_shares;
  int64_t offline_updates = 0;  // first steps, on prior data alone
  // Frames that each process of an agent's learner keeps of the replay.
  replay::KeptFrames::Options frame_store;
  graph::Precision precision = graph::Precision::kF32;
  replicator::ReplicationConfig replication;
  LimitsConfig limits;
  double log_interval_s = 5.0;

  double checkpoint_interval_s = 300.0;  // 0: only at the end
  int num_kept_checkpoints = 2;

  std::string parameter_bind = "auto";  // empty: none published
  double publish_interval_s = 1.0;
  // File with the run's key pair, for the socket of the parameters; empty:
  // none. Not a key of the section: the programs set it from the run's.
  std::string key_file;

  // `strategies` are the allowed values of `replication.strategy`.
  static LearnerConfig Read(config::Reader& reader,
                            const replicator::StrategyRegistry& strategies);
};

// Returns the section for `processes` processes of a group, between
// replication.min_processes and all of them. The batch of a step is unchanged
// if the replicas of these processes divide it; otherwise it is the largest
// that they divide, B' of B rows, and learning rates are multiplied by B' / B
// (linear scaling, arXiv:1706.02677, sec. 2.1). Throws ConfigError for another
// number of processes.
LearnerConfig LearnerOfProcesses(const LearnerConfig& config, int processes);

// Throws ConfigError, with both numbers, if the batch would have another size
// on an allowed number of processes. For workloads that count their position in
// the data in batches.
void CheckSameBatch(const LearnerConfig& config);

}  // namespace replicant::learner
