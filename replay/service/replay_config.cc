#include "replay/service/replay_config.h"

#include <fmt/format.h>

#include "core/config/log_config.h"
#include "replay/format/frame_codec.h"
#include "replay/format/protocol.h"

namespace replicant::replay {
namespace {

RateLimiterConfig ReadRateLimiter(config::Reader& parent) {
  RateLimiterConfig c;
  config::Reader reader = parent.Section(
      "rate_limiter", "how often items are sampled, beside how many come in");
  reader.Field("mode", &c.mode,
               {{"ratio", RateLimiterMode::kRatio},
                {"min_size", RateLimiterMode::kMinSize},
                {"queue", RateLimiterMode::kQueue}},
               "ratio: samples follow inserts; min_size: samples wait for items"
               " only; queue: inserts wait for room");
  reader.Field("samples_per_insert", &c.samples_per_insert, {1e-3, 1e6},
               "mean number of times that an item is sampled (mode ratio)");
  reader.Field(
      "min_size_to_sample", &c.min_size_to_sample, {1, 1'000'000'000},
      "items that the table holds before the first sample (not queue)");
  reader.Field("error_buffer", &c.error_buffer, {0.0, 1e12},
               "how far samples may lead or lag, in samples (mode ratio)");
  return c;
}

// Reads the sections, and says of each table why it cannot work.
void ReadTables(config::Reader& reader, ReplayConfig* c) {
  reader.Sections("tables", &c->tables, {0, kMaxTables},
                  "tables by name; none: one called default");
  for (const auto& [name, section] : c->tables) {
    RateLimiterLimits limits = c->limits;
    limits.max_size = section.table.max_size;
    limits.max_times_sampled = section.table.max_times_sampled;
    const std::string why = WhyRefused(section.table.rate_limiter, limits);
    if (!why.empty()) reader.Error("tables", fmt::format("{}: {}", name, why));
  }
}

}  // namespace

TableSection TableSection::Read(config::Reader& reader) {
  TableSection section;
  TableConfig& c = section.table;
  reader.Field("max_size", &c.max_size, {1, 100'000'000},
               "items; one more removes one");
  reader.Field("sampler", &c.sampler,
               {{"prioritized", SelectorKind::kPrioritized},
                {"uniform", SelectorKind::kUniform},
                {"fifo", SelectorKind::kFifo},
                {"lifo", SelectorKind::kLifo}},
               "how items are drawn");
  reader.Field("priority_exponent", &c.priority_exponent, {0.0, 1.0},
               "exponent of the priorities (sampler prioritized)");
  reader.Field("remover", &c.remover,
               {{"fifo", SelectorKind::kFifo},
                {"lifo", SelectorKind::kLifo},
                {"lowest_priority", SelectorKind::kLowestPriority}},
               "which item goes when the table is full");
  reader.Field("max_times_sampled", &c.max_times_sampled, {0, 1'000'000},
               "an item goes after so many samples; 0: never");
  reader.Field("n_step", &c.n_step.n_step, {1, kMaxNStep},
               "steps of a transition");
  reader.Field("discount", &c.n_step.discount, {0.0, 1.0}, "discount per step");
  reader.Field("stack", &c.n_step.stack, {1, kMaxStack},
               "frames of a stacked observation");
  c.rate_limiter = ReadRateLimiter(reader);
  return section;
}

ReplayConfig ReplayConfig::Read(config::Reader& reader) {
  ReplayConfig c;
  reader.Field("bind", &c.bind,
               "ZeroMQ endpoint; without key_file only loopback and ipc");
  reader.Field("metrics_address", &c.metrics_address,
               "ADDRESS:PORT where Prometheus finds the metrics; empty: none");
  reader.Field("observation_bytes", &c.shape.observation_bytes,
               {0, kMaxRowBytes}, "bytes of an observation, without pixels");
  reader.Field("action_bytes", &c.shape.action_bytes, {0, kMaxRowBytes},
               "bytes of an action");
  reader.Field("frame_bytes", &c.shape.frame_bytes, {0, kMaxFrameBytes},
               "bytes of a frame; 0 without pixels");
  reader.Field("insert_chunk", &c.limits.insert_chunk, {1, 1'000'000},
               "items that one message of a writer can bring");
  reader.Field("samples_in_flight", &c.limits.samples_in_flight,
               {1, 1'000'000'000},
               "replicas x prefetch depth x batch size of all readers");
  reader.Field("max_bytes", &c.max_bytes, {1 << 20, int64_t{1} << 50},
               "bytes of memory for steps; beyond them the oldest go, to the "
               "disk or for good");
  std::string disk_folder;
  reader.Field("disk_folder", &disk_folder,
               "where steps go that memory has no room for; needs "
               "disk_max_bytes");
  c.disk.folder = disk_folder;
  reader.Field("disk_max_bytes", &c.disk.max_bytes, {0, int64_t{1} << 50},
               "bytes of the files there, at least 1 MiB; 0: no disk tier");
  reader.Field("credits", &c.credits, {1, kMaxGroupsPerInsert},
               "step groups that a writer may have unacknowledged");
  reader.Field("shared_memory", &c.shared_memory,
               "batches go to readers of this host through memory that they"
               " share");
  reader.Field("encode_threads", &c.encode_threads, {0, 64},
               "threads that gather batches with pixels; 0: the service's own");
  reader.Field("peer_timeout_s", &c.peer_timeout_s, {0.1, 3600.0},
               "a writer that is silent for longer loses its open episode");
  reader.Field("seed", &c.seed, {0, INT64_MAX}, "of the draws");
  reader.Field("checkpoint_folder", &c.checkpoint_folder,
               "where checkpoints are written and found; empty: none");
  reader.Field("durability", &c.durability,
               {{"checkpoint", Durability::kCheckpoint},
                {"journal", Durability::kJournal}},
               "what an acknowledged step survives a crash by");
  reader.Field("checkpoint_interval_s", &c.checkpoint_interval_s, {0.0, 1e6},
               "time between checkpoints; 0: only at the end");
  reader.Field("num_kept_checkpoints", &c.num_kept_checkpoints, {1, 1000},
               "checkpoints kept: so many taken on time, and so many that "
               "clients asked for");
  reader.Field("restore_checkpoint", &c.restore_checkpoint, {0, INT64_MAX},
               "id of the checkpoint to go back to; 0: the newest");
  reader.Field("key_file", &c.key_file,
               "CURVE key pair of the service; empty: no encryption");
  reader.Field("allowed_clients_file", &c.allowed_clients_file,
               "public keys of the clients, one a line; needed with key_file");
  ReadTables(reader, &c);
  if (c.key_file.empty() != c.allowed_clients_file.empty()) {
    reader.Error("key_file", "and allowed_clients_file must be given together");
  }
  if (c.durability == Durability::kJournal && c.checkpoint_folder.empty()) {
    reader.Error("durability", "journal needs a checkpoint_folder");
  }
  if (c.disk.folder.empty() != (c.disk.max_bytes == 0)) {
    reader.Error("disk_folder", "and disk_max_bytes must be given together");
  }
  if (c.disk.max_bytes != 0 && c.disk.max_bytes < kMinDiskTierBytes) {
    reader.Error("disk_max_bytes",
                 fmt::format("must be 0 or >= {}", kMinDiskTierBytes));
  }
  if (c.restore_checkpoint != 0 && c.checkpoint_folder.empty()) {
    reader.Error("restore_checkpoint", "needs a checkpoint_folder");
  }
  return c;
}

ShardConfig ReplayConfig::MakeShardConfig() const {
  ShardConfig config;
  config.shape = shape;
  config.max_bytes = max_bytes;
  config.disk = disk;
  config.limits = limits;
  config.seed = static_cast<uint64_t>(seed);
  for (const auto& [name, section] : tables) {
    config.tables.push_back(section.table);
    config.tables.back().name = name;
  }
  if (config.tables.empty()) config.tables.emplace_back();
  return config;
}

ReplayMainConfig ReplayMainConfig::Read(config::Reader& reader) {
  ReplayMainConfig c;
  reader.Section("replay", &c.replay, "the replay service");
  // of the other programs of a run
  for (const char* section : {"run", "task", "agent", "resnet50", "sngan",
                              "actors", "learner", "evaluation", "fleet"}) {
    reader.Foreign(section);
  }
  c.log = config::ReadLogOptions(reader);
  c.log.role = "replay";
  return c;
}

}  // namespace replicant::replay
