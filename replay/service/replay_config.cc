#include "replay/service/replay_config.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstring>

#include "replay/checkpoint/shard_folder.h"
#include "replay/format/frame_codec.h"
#include "replay/format/protocol.h"
#include "replay/table/sum_tree.h"

namespace replicant::replay {
namespace {

RateLimiterConfig ReadRateLimiter(config::Reader& parent) {
  RateLimiterConfig c;
  config::Reader reader =
      parent.Section("rate_limiter", "when samples and inserts wait");
  reader.Field(
      "mode", &c.mode,
      {{"ratio", RateLimiterMode::kRatio},
       {"min_size", RateLimiterMode::kMinSize},
       {"queue", RateLimiterMode::kQueue}},
      "ratio: samples and inserts wait for each other; min_size: samples wait "
      "until the table holds enough items; queue: inserts wait for room");
  reader.Field("samples_per_insert", &c.samples_per_insert, {1e-3, 1e6},
               "mean number of times that an item is sampled (mode ratio)");
  reader.Field("min_size_to_sample", &c.min_size_to_sample, {1, 1'000'000'000},
               "items that the table must hold before the first sample (modes "
               "ratio and min_size)");
  reader.Field("error_buffer", &c.error_buffer, {0.0, 1e12},
               "number of samples by which samples may lead or lag inserts "
               "(mode ratio)");
  return c;
}

PriorityFade ReadPriorityFade(config::Reader& parent) {
  PriorityFade c;
  config::Reader reader = parent.Section(
      "priority_fade",
      "an item's weight is priority^priority_exponent max(base^age, floor), "
      "where its age is the number of items inserted after it into the table "
      "(sampler prioritized)");
  reader.Field("base", &c.base, {0.5, 1.0},
               "factor of an item's weight for each later item; 1: none");
  reader.Field("floor", &c.floor, {PriorityFade::kMinFloor, 1.0},
               "least factor of an item's weight, however old it is");
  return c;
}

constexpr int64_t kMinShardBytes = 1 << 20;
constexpr const char* kShardWord = "{shard}";

// Returns ceil(total / parts).
int64_t Part(int64_t total, int64_t parts) {
  return (total + parts - 1) / parts;
}

// Raises the number behind the last colon by `index`; 0 stays, for any free
// port.
std::string NextPort(const std::string& address, int64_t index) {
  const size_t colon = address.rfind(':');
  int port = 0;
  const char* const end = address.data() + address.size();
  if (colon == std::string::npos) return address;
  const char* const begin = address.data() + colon + 1;
  const auto parsed = std::from_chars(begin, end, port);
  if (begin == end || parsed.ptr != end || port == 0) return address;
  return fmt::format("{}:{}", address.substr(0, colon), port + index);
}

// Returns the address of a shard.
std::string ShardBind(std::string bind, int64_t index) {
  const size_t at = bind.find(kShardWord);
  if (at != std::string::npos) {
    return bind.replace(at, std::strlen(kShardWord), std::to_string(index));
  }
  if (index == 0) return bind;
  if (bind.starts_with("tcp://")) return NextPort(bind, index);
  if (bind.starts_with("ipc://")) return fmt::format("{}-{}", bind, index);
  return bind;
}

RateLimiterLimits LimitsOf(const ReplayConfig& config,
                           const TableConfig& table) {
  RateLimiterLimits limits = config.limits;
  limits.max_size = table.max_size;
  limits.max_times_sampled = table.max_times_sampled;
  return limits;
}

// Reports for each table why it cannot be divided among the shards.
void CheckShards(config::Reader& reader, const ReplayConfig& c) {
  const ReplayConfig part = c.OfShard(0);
  for (const auto& [name, section] : part.tables) {
    const int64_t size = section.table.max_size;
    if (size <= SumTree::kMaxCapacity) continue;
    reader.Error("shards",
                 fmt::format("{}: table {} has {} items in each shard, which "
                             "holds at most {}; want more shards, or a smaller "
                             "max_size",
                             c.shards, name, size, SumTree::kMaxCapacity));
  }
  if (c.shards == 1) return;
  for (const auto& [name, section] : part.tables) {
    const TableConfig& table = section.table;
    const bool is_ordered = table.sampler == SelectorKind::kFifo ||
                            table.sampler == SelectorKind::kLifo;
    if (is_ordered || table.rate_limiter.mode == RateLimiterMode::kQueue) {
      reader.Error(
          "shards",
          fmt::format("{}: table {} is a queue or samples its items in order, "
                      "and {} services have no common order; allowed: 1, or "
                      "sampler prioritized or uniform",
                      c.shards, name, c.shards));
      continue;
    }
    const std::string why =
        WhyRefused(table.rate_limiter, LimitsOf(part, table));
    if (why.empty()) continue;
    reader.Error("shards", fmt::format("{}: table {}, of which each shard has "
                                       "1/{}: {}",
                                       c.shards, name, c.shards, why));
  }
  if (part.max_bytes < kMinShardBytes) {
    reader.Error("shards",
                 fmt::format("{}: max_bytes {} gives each shard less than {}",
                             c.shards, c.max_bytes, kMinShardBytes));
  }
  if (part.disk.max_bytes != 0 && part.disk.max_bytes < kMinDiskTierBytes) {
    reader.Error(
        "shards",
        fmt::format("{}: disk_max_bytes {} gives each shard less than {}",
                    c.shards, c.disk.max_bytes, kMinDiskTierBytes));
  }
}

void ReadPrior(config::Reader& parent, std::string* folder) {
  config::Reader reader = parent.Section(
      "prior",
      "steps of before the run, which fill a share of each batch "
      "(learner.batch_shares); the learner holds them in memory, with the "
      "sampler, n_step, discount and window of the run's table");
  reader.Field("folder", folder,
               "folder that replicant data import has made, or the replay of "
               "another run, relative to the file that holds this key; empty "
               "for none");
}

// Reads the sections, and reports for each table why it cannot work.
void ReadTables(config::Reader& reader, ReplayConfig* c) {
  reader.Sections("tables", &c->tables, {0, kMaxTables},
                  "tables by name; empty: one table named default");
  for (const auto& [name, section] : c->tables) {
    for (const std::string& why :
         {WhyRefused(section.table.rate_limiter, LimitsOf(*c, section.table)),
          WhyRefused(section.table.n_step)}) {
      if (why.empty()) continue;
      reader.Error("tables", fmt::format("{}: {}", name, why));
    }
    const std::string why =
        WhyRefused(section.table.priority_fade, section.table.sampler);
    if (why.empty()) continue;
    reader.Error("tables", fmt::format("{}: priority_fade: {}", name, why));
  }
}

void ReadShape(config::Reader& reader, StepShape* shape) {
  reader.Field("observation_bytes", &shape->observation_bytes,
               {0, kMaxRowBytes},
               "bytes of an observation without its pixels; a fleet sets it");
  reader.Field("action_bytes", &shape->action_bytes, {0, kMaxRowBytes},
               "bytes of an action; a fleet sets it");
  reader.Field("frame_bytes", &shape->frame_bytes, {0, kMaxFrameBytes},
               "bytes of a frame; 0 without pixels; a fleet sets it");
}

void ReadDiskTier(config::Reader& reader, DiskTierConfig* disk) {
  std::string folder;
  reader.Field(
      "disk_folder", &folder,
      "folder for steps that no longer fit into memory; needs disk_max_bytes");
  disk->folder = folder;
  reader.Field("disk_max_bytes", &disk->max_bytes, {0, int64_t{1} << 50},
               "maximum bytes of the files in disk_folder, at least 1 MiB; 0 "
               "for no disk tier");
}

void ReadCheckpoints(config::Reader& reader, ReplayConfig* c) {
  reader.Field(
      "checkpoint_folder", &c->checkpoint_folder,
      "folder for checkpoints; empty for none; a fleet sets RUN/replay");
  reader.Field(
      "durability", &c->durability,
      {{"checkpoint", Durability::kCheckpoint},
       {"journal", Durability::kJournal}},
      "how an acknowledged step survives a crash: in the next checkpoint, or "
      "in a journal that is written before the acknowledgement");
  reader.Field("checkpoint_interval_s", &c->checkpoint_interval_s, {0.0, 1e6},
               "seconds between checkpoints; 0 for one at the end only");
  reader.Field("num_kept_checkpoints", &c->num_kept_checkpoints, {1, 1000},
               "number of newest checkpoints to keep; periodic ones and those "
               "that clients requested are counted separately");
  reader.Field(
      "restore_checkpoint", &c->restore_checkpoint,
      {0, static_cast<int64_t>(kMaxCheckpointId)},
      "id of the checkpoint to restore; 0 for the newest; a fleet sets "
      "it when it resumes");
}

// Reports keys that need each other.
void CheckPairs(config::Reader& reader, const ReplayConfig& c) {
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
}

}  // namespace

TableSection TableSection::Read(config::Reader& reader) {
  TableSection section;
  TableConfig& c = section.table;
  reader.Field(
      "max_size", &c.max_size, {1, 100'000'000},
      "maximum number of items; an insert into a full table removes one");
  reader.Field("sampler", &c.sampler,
               {{"prioritized", SelectorKind::kPrioritized},
                {"uniform", SelectorKind::kUniform},
                {"fifo", SelectorKind::kFifo},
                {"lifo", SelectorKind::kLifo}},
               "rule that chooses the item to sample");
  reader.Field("priority_exponent", &c.priority_exponent, {0.0, 1.0},
               "exponent of the priorities (sampler prioritized)");
  c.priority_fade = ReadPriorityFade(reader);
  reader.Field("remover", &c.remover,
               {{"fifo", SelectorKind::kFifo},
                {"lifo", SelectorKind::kLifo},
                {"lowest_priority", SelectorKind::kLowestPriority}},
               "rule that chooses the item to remove from a full table");
  reader.Field(
      "max_times_sampled", &c.max_times_sampled, {0, 1'000'000},
      "number of samples after which an item is removed; 0 for no limit");
  reader.Field("n_step", &c.n_step.n_step, {1, kMaxNStep},
               "number of steps of a transition; at most window if the table "
               "has windows");
  reader.Field("window", &c.n_step.window, {0, kMaxWindow},
               "number of successive steps that an item holds; 0 for n-step "
               "transitions");
  reader.Field("period", &c.n_step.period, {1, kMaxWindow},
               "number of steps from the beginning of one window to the next; "
               "windows overlap by window - period");
  reader.Field("discount", &c.n_step.discount, {0.0, 1.0}, "discount per step");
  reader.Field("stack", &c.n_step.stack, {1, kMaxStack},
               "number of frames in a stacked observation; a fleet sets it");
  c.rate_limiter = ReadRateLimiter(reader);
  return section;
}

ReplayConfig ReplayConfig::Read(config::Reader& reader) {
  ReplayConfig c;
  reader.Field("shards", &c.shards, {1, kMaxShards},
               "number of replay services over which a run distributes its "
               "episodes. Sizes, memory and rate limiters are totals; each "
               "shard gets an equal share");
  reader.Field(
      "bind", &c.bind,
      "ZeroMQ endpoint of the service; auto: a socket of this run, for this "
      "host only; tcp://ADDRESS:*: a free port, which the run announces. "
      "Without keys only auto, loopback and ipc are allowed. With several "
      "shards, shard i uses port + i, or its number in place of {shard}");
  reader.Field("metrics_address", &c.metrics_address,
               "ADDRESS:PORT where Prometheus reads the metrics; empty for "
               "none. Shard i uses port + i");
  ReadShape(reader, &c.shape);
  reader.Field("float_rows", &c.has_float_rows,
               "whether observations without their pixels and actions are "
               "float32; steps with a number that is not finite are then "
               "refused, and left out of a restored checkpoint; a fleet sets "
               "it");
  reader.Field("insert_chunk", &c.limits.insert_chunk, {1, 1'000'000},
               "maximum number of items in one message of a writer; the rate "
               "limiter's error_buffer must allow for it");
  reader.Field("samples_in_flight", &c.limits.samples_in_flight,
               {1, 1'000'000'000},
               "prefetch depth times batch size, summed over all readers; the "
               "rate limiter must allow for it");
  reader.Field("max_bytes", &c.max_bytes, {kMinShardBytes, int64_t{1} << 50},
               "bytes of memory for steps; beyond them the oldest steps move "
               "to the disk tier, or are removed if there is none");
  ReadDiskTier(reader, &c.disk);
  reader.Field("credits", &c.credits, {1, kMaxChunksPerInsert},
               "maximum number of chunks that a writer may have sent "
               "without an acknowledgement");
  reader.Field(
      "shared_memory", &c.shared_memory,
      "whether readers of this host receive batches through shared memory");
  reader.Field("encode_threads", &c.encode_threads, {0, 64},
               "threads that gather batches with pixels; 0 for the service's "
               "own thread");
  reader.Field(
      "peer_timeout_s", &c.peer_timeout_s, {0.1, 3600.0},
      "seconds of silence after which a writer loses its open episode");
  reader.Field("seed", &c.seed, {0, INT64_MAX},
               "seed of the sampling; a fleet sets run.seed");
  ReadCheckpoints(reader, &c);
  reader.Field("key_file", &c.key_file,
               "CURVE key pair of the service; empty for no encryption");
  reader.Field(
      "allowed_clients_file", &c.allowed_clients_file,
      "file with the public key of one client per line; needed with key_file");
  ReadTables(reader, &c);
  ReadPrior(reader, &c.prior_folder);
  CheckShards(reader, c);
  if (c.shards == 1) c.bind = ShardBind(c.bind, 0);
  CheckPairs(reader, c);
  return c;
}

std::vector<std::string> ReplayConfig::Endpoints() const {
  if (shards == 1) return {ShardBind(bind, 0)};
  if (!shard_binds.empty()) return shard_binds;
  std::vector<std::string> endpoints;
  for (int64_t i = 0; i < shards; ++i) {
    endpoints.push_back(ShardBind(bind, i));
  }
  return endpoints;
}

ReplayConfig ReplayConfig::OfShard(int64_t index) const {
  ReplayConfig part = *this;
  part.bind = Endpoints().at(static_cast<size_t>(index));
  part.shard_binds.clear();
  part.shards = 1;
  if (shards == 1) return part;
  part.metrics_address = NextPort(metrics_address, index);
  part.seed = seed + index;
  part.max_bytes = max_bytes / shards;
  part.disk.max_bytes = disk.max_bytes / shards;
  if (!disk.folder.empty()) {
    part.disk.folder = ShardFolder(disk.folder, index, shards);
  }
  if (!checkpoint_folder.empty()) {
    part.checkpoint_folder = ShardFolder(checkpoint_folder, index, shards);
  }
  part.limits.samples_in_flight = Part(limits.samples_in_flight, shards);
  // without any table, one table with the default settings
  if (part.tables.empty()) part.tables[TableConfig().name];
  for (auto& [name, section] : part.tables) {
    TableConfig& table = section.table;
    table.max_size = Part(table.max_size, shards);
    // while the shard inserts one item, the run inserts one into each
    table.priority_fade.base =
        std::pow(table.priority_fade.base, static_cast<double>(shards));
    RateLimiterConfig& limiter = table.rate_limiter;
    limiter.min_size_to_sample = Part(limiter.min_size_to_sample, shards);
    limiter.error_buffer /= static_cast<double>(shards);
  }
  return part;
}

ShardConfig ReplayConfig::MakeShardConfig() const {
  ShardConfig config;
  config.shape = shape;
  config.has_float_rows = has_float_rows;
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

}  // namespace replicant::replay
