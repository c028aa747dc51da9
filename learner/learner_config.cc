#include "learner/learner_config.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"

namespace replicant::learner {

LimitsConfig LimitsConfig::Read(config::Reader& reader) {
  LimitsConfig c;
  reader.Field("max_steps", &c.max_steps, {0, int64_t{1} << 53},
               "training steps after which the run ends; 0 for no limit");
  reader.Field(
      "max_seconds", &c.max_seconds, {0.0, 1e9},
      "seconds of running after which the run ends: time spent waiting counts, "
      "time between a stop and a resume does not; 0 for no limit");
  reader.Field("max_frames", &c.max_frames, {0, int64_t{1} << 53},
               "environment frames after which the run ends; 0 for no limit");
  reader.Field("max_epochs", &c.max_epochs, {0.0, 1e9},
               "passes over the images after which the run ends; 0 for no "
               "limit; resnet50 and sngan with a source of images");
  return c;
}

BatchSharesConfig BatchSharesConfig::Read(config::Reader& reader) {
  BatchSharesConfig c;
  reader.Field(
      "prior", &c.prior, {0.0, 1.0},
      "share of the rows that come from replay.prior, rounded to whole "
      "rows and at least one; the others are acted. 1: all, and "
      "actors' steps are not learned from");
  reader.Field("default", &c.acted, {0.0, 1.0},
               "share of the rows that are acted, of the run's own table; "
               "null: 1 - prior");
  if (c.acted && std::abs(c.prior + *c.acted - 1.0) > 1e-9) {
    reader.Error("default", fmt::format("prior {} and default {} make {}, want "
                                        "shares whose sum is 1",
                                        c.prior, *c.acted, c.prior + *c.acted));
  }
  return c;
}

LearnerConfig LearnerConfig::Read(
    config::Reader& reader, const replicator::StrategyRegistry& strategies) {
  LearnerConfig c;
  reader.Field("workload", &c.workload,
               "model to train: d4pg, resnet50 or sngan");
  reader.Field("batch_size", &c.batch_size, {1, 1'000'000},
               "examples of one training step, over all replicas that compute "
               "it together");
  reader.Field("importance_exponent", &c.importance.exponent, {0.0, 1.0},
               "exponent of the importance weights, which correct for "
               "prioritized sampling: (size x probability)^-exponent, divided "
               "by the batch's largest; 0: all weights are 1. Agents only");
  reader.Field("final_importance_exponent", &c.importance.final_exponent,
               {0.0, 1.0},
               "importance exponent at the end of its schedule, which is "
               "linear; null: importance_exponent throughout");
  reader.Field("importance_schedule_steps", &c.importance.steps,
               {1, int64_t{1} << 40},
               "length of the importance exponent's schedule, in agent steps "
               "of all actors");
  reader.Section("batch_shares", &c.batch_shares,
                 "the rows of a batch by their table; of runs with "
                 "replay.prior.folder");
  reader.Field("offline_updates", &c.offline_updates, {0, int64_t{1} << 40},
               "first training steps, on replay.prior alone; the actors "
               "meanwhile act until the rate limiter stops them");
  config::Reader frames = reader.Section(
      "frame_store",
      "frames that an agent's learner keeps, so that none travels twice");
  frames.Field("max_bytes", &c.frame_store.max_bytes, {0, int64_t{1} << 50},
               "memory of each process for them; what it lacks comes with the "
               "batches. The replay's frames decompressed: its size times "
               "height x width x 3. 0: every batch brings its frames. One "
               "replica on a GPU takes as much of the device");
  frames.Field("decompress", &c.frame_store.decompresses,
               "whether frames are decompressed once, when they arrive; false: "
               "for each batch, in a fifth of the memory");
  reader.Field(
      "precision", &c.precision,
      {{"f32", graph::Precision::kF32},
       {"tf32", graph::Precision::kTF32},
       {"bf16", graph::Precision::kBF16},
       {"auto", graph::Precision::kAuto}},
      "precision of products and activations: f32; tf32 (backend cuda rounds "
      "the operands of products; others compute f32); bf16 with weights, "
      "statistics, losses and optimizer in f32 (docs/graph.md); auto: bf16 "
      "where the learner's processor (avx512_bf16, on an Intel amx as well) or "
      "device multiplies it faster, otherwise f32. A run may resume in another "
      "precision");
  config::Reader replication = reader.Section(
      "replication", "devices and processes that compute a training step");
  c.replication = replicator::ReplicationConfig::Read(replication, strategies);
  reader.Section("limits", &c.limits, "when the training ends");
  reader.Field("log_interval_s", &c.log_interval_s, {0.01, 3600.0},
               "seconds between two points of a curve");
  reader.Field("checkpoint_interval_s", &c.checkpoint_interval_s, {0.0, 1e6},
               "seconds between checkpoints; 0 for one at the end only");
  reader.Field("num_kept_checkpoints", &c.num_kept_checkpoints, {1, 1000},
               "number of newest checkpoints to keep");
  reader.Field("parameter_bind", &c.parameter_bind,
               "ZeroMQ endpoint that publishes the parameters; auto: a socket "
               "of this run, for this host only; tcp://ADDRESS:*: a free port, "
               "which the run announces; empty for none");
  reader.Field("publish_interval_s", &c.publish_interval_s, {0.001, 3600.0},
               "minimum seconds between two publications of the parameters");
  const int replicas = c.replication.replicas_of_group();
  if (c.batch_size % replicas != 0) {
    reader.Error("batch_size",
                 fmt::format("{} cannot be divided evenly among {} replicas",
                             c.batch_size, replicas));
  }
  return c;
}

LearnerConfig LearnerOfProcesses(const LearnerConfig& config, int processes) {
  const replicator::ReplicationConfig& all = config.replication;
  const int fewest = all.is_elastic() ? all.min_processes : all.num_processes();
  if (processes < fewest || processes > all.num_processes()) {
    throw ConfigError(fmt::format(
        "learner.replication: a group of {} processes; allowed: {} to {}, by "
        "min_processes and replicas",
        processes, fewest, all.num_processes()));
  }
  LearnerConfig c = config;
  c.replication.replicas = processes * all.replicas_per_process;
  // of the whole group, for a group that has shrunk
  c.replication.min_processes = 0;
  c.batch_size -= c.batch_size % c.replication.replicas;
  c.replication.learning_rate_scale = static_cast<double>(c.batch_size) /
                                      static_cast<double>(config.batch_size);
  return c;
}

void CheckSameBatch(const LearnerConfig& config) {
  const replicator::ReplicationConfig& replication = config.replication;
  if (!replication.is_elastic()) return;
  for (int n = replication.min_processes; n < replication.num_processes();
       ++n) {
    const int replicas = n * replication.replicas_per_process;
    if (config.batch_size % replicas == 0) continue;
    throw ConfigError(fmt::format(
        "learner.replication.min_processes: {} allows {} replicas, among which "
        "learner.batch_size {} cannot be divided evenly; workload {} counts "
        "its place in the images in batches, which must stay the same",
        replication.min_processes, replicas, config.batch_size,
        config.workload));
  }
}

}  // namespace replicant::learner
