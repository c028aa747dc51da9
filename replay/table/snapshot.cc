#include "replay/table/snapshot.h"

#include <fmt/format.h>

#include <cstring>
#include <unordered_map>

#include "base/check.h"
#include "base/error.h"
#include "base/rpc/wire.h"

namespace replicant::replay {
namespace {

constexpr uint32_t kMaxCount = UINT32_MAX;
constexpr uint32_t kMaxTableNameBytes = 4096;

// One live item on disk. It has no padding, so all written bytes are defined.
struct ItemRecord {
  uint64_t first_serial, order;
  uint32_t slot, generation;
  int32_t step, times_sampled;
  float reward, discount, priority;
  uint16_t n, num_chunks;
};
static_assert(sizeof(ItemRecord) == 48);

struct PlaceRecord {
  uint64_t serial, next_serial, segment;
  int64_t offset;
};
static_assert(sizeof(PlaceRecord) == 32);

template <typename Record>
void WriteRecords(rpc::WireWriter& writer, const std::vector<Record>& records) {
  writer.WriteBytes(std::as_bytes(std::span(records)));
}

template <typename Record>
std::vector<Record> ReadRecords(rpc::WireReader& reader,
                                std::string_view field) {
  const std::span<const std::byte> bytes = reader.ReadBytes(field, kMaxCount);
  if (bytes.size() % sizeof(Record) != 0) {
    throw IoError(fmt::format(
        "checkpoint: {} of {} bytes do not divide into elements of {} bytes",
        field, bytes.size(), sizeof(Record)));
  }
  std::vector<Record> records(bytes.size() / sizeof(Record));
  if (!records.empty()) {
    std::memcpy(records.data(), bytes.data(), bytes.size());
  }
  return records;
}

void WriteNStepItem(rpc::WireWriter& writer, const NStepItem& item) {
  writer.Write(item.first->serial);
  writer.Write(item.num_chunks);
  writer.Write(item.step);
  writer.Write(item.n);
  writer.Write(item.reward);
  writer.Write(item.discount);
  writer.WriteBool(item.priority.has_value());
  writer.Write(item.priority.value_or(0.0f));
}

void WriteLimiter(rpc::WireWriter& writer, const RateLimiter::State& limiter) {
  writer.Write(static_cast<uint32_t>(limiter.config.mode));
  writer.Write(limiter.config.samples_per_insert);
  writer.Write(limiter.config.min_size_to_sample);
  writer.Write(limiter.config.error_buffer);
  writer.Write(limiter.inserts);
  writer.Write(limiter.samples);
  writer.Write(limiter.correction);
}

// The settings are not checked: RateLimiter::Restore() only compares them with
// its own.
RateLimiter::State ReadLimiter(rpc::WireReader& reader) {
  RateLimiter::State limiter;
  limiter.config.mode =
      static_cast<RateLimiterMode>(reader.Read<uint32_t>("mode"));
  limiter.config.samples_per_insert = reader.Read<double>("samples_per_insert");
  limiter.config.min_size_to_sample =
      reader.Read<int64_t>("min_size_to_sample");
  limiter.config.error_buffer = reader.Read<double>("error_buffer");
  limiter.inserts = reader.Read<int64_t>("inserts");
  limiter.samples = reader.Read<int64_t>("samples");
  limiter.correction = reader.Read<double>("correction");
  return limiter;
}

void WriteTable(rpc::WireWriter& writer,
                const ShardSnapshot::SavedTable& table) {
  writer.WriteString(table.name);
  writer.Write(table.n_step.n_step);
  writer.Write(table.n_step.discount);
  writer.Write(table.n_step.stack);
  const TableContents& contents = table.contents;
  WriteLimiter(writer, contents.limiter);
  writer.Write(contents.max_priority);
  writer.Write(contents.max_generation);
  writer.Write(table.random_position);
  writer.Write(table.updates);
  writer.Write(table.late_updates);
  writer.Write(static_cast<uint64_t>(contents.items.size()));
  std::vector<ItemRecord> records;
  records.reserve(contents.items.size());
  for (size_t slot = 0; slot < contents.items.size(); ++slot) {
    const TableItem& item = contents.items[slot];
    if (item.first == nullptr) continue;
    records.push_back({.first_serial = item.first->serial,
                       .order = item.order,
                       .slot = static_cast<uint32_t>(slot),
                       .generation = item.generation,
                       .step = item.step,
                       .times_sampled = item.times_sampled,
                       .reward = item.reward,
                       .discount = item.discount,
                       .priority = item.priority,
                       .n = item.n,
                       .num_chunks = item.num_chunks});
  }
  WriteRecords(writer, records);
  writer.WriteArray<uint32_t>(contents.free_slots);
}

// Window and period of each table.
void WriteWindows(rpc::WireWriter& writer,
                  const std::vector<ShardSnapshot::SavedTable>& tables) {
  std::vector<int64_t> windows, periods;
  for (const auto& table : tables) {
    windows.push_back(table.n_step.window);
    periods.push_back(table.n_step.period);
  }
  writer.WriteArray<int64_t>(windows);
  writer.WriteArray<int64_t>(periods);
}

void ReadWindows(rpc::WireReader& reader,
                 std::vector<ShardSnapshot::SavedTable>* tables) {
  const auto windows = reader.ReadArray<int64_t>("windows", kMaxCount);
  const auto periods = reader.ReadArray<int64_t>("periods", kMaxCount);
  if (windows.size() != tables->size() || periods.size() != tables->size()) {
    throw IoError(
        fmt::format("checkpoint: {} windows and {} periods of {} tables",
                    windows.size(), periods.size(), tables->size()));
  }
  for (size_t i = 0; i < tables->size(); ++i) {
    (*tables)[i].n_step.window = windows[i];
    (*tables)[i].n_step.period = periods[i];
  }
}

void WriteSavedWriter(rpc::WireWriter& writer,
                      const ShardSnapshot::SavedWriter& saved) {
  writer.Write(saved.id);
  writer.Write(saved.last_sequence);
  writer.Write(saved.episode);
  writer.Write(saved.next_step);
  writer.Write(saved.steps);
  writer.WriteBool(saved.is_open);
  writer.WriteBool(saved.is_connected);
  writer.Write(static_cast<uint32_t>(saved.assemblers.size()));
  for (const ShardSnapshot::SavedAssembler& assembler : saved.assemblers) {
    std::vector<uint64_t> serials;
    for (const StoredChunk* chunk : assembler.chunks) {
      serials.push_back(chunk->serial);
    }
    writer.WriteArray<uint64_t>(serials);
    writer.Write(assembler.next_step);
    writer.Write(static_cast<uint32_t>(assembler.waiting.size()));
    for (const NStepItem& item : assembler.waiting) {
      WriteNStepItem(writer, item);
    }
  }
}

// Finds chunks by serial and checks that ranges of episodes are complete.
class ChunkIndex {
 public:
  explicit ChunkIndex(const std::vector<ShardSnapshot::SavedChunk>& chunks) {
    for (const auto& saved : chunks) chunks_[saved.chunk->serial] = &saved;
  }

  StoredChunk* Find(uint64_t serial) const {
    const auto found = chunks_.find(serial);
    if (found == chunks_.end()) {
      throw IoError(fmt::format("checkpoint: no chunk {}", serial));
    }
    return found->second->chunk.get();
  }

  // Throws IoError unless `count` chunks from `serial` on follow each other and
  // hold the observations [first, last].
  StoredChunk* FindRange(uint64_t serial, int64_t count, int64_t first,
                         int64_t last) const {
    StoredChunk* const begin = Find(serial);
    uint64_t at = serial;
    for (int64_t i = 1; i < count; ++i)
      at = chunks_.at(at)->next_serial, Find(at);
    if (count < 1 || first < begin->view().first_step() || last < first ||
        last >= Find(at)->view().end_observation()) {
      throw IoError(fmt::format(
          "checkpoint: steps {} to {} are not in the {} chunks from "
          "{} on",
          first, last, count, serial));
    }
    return begin;
  }

 private:
  std::unordered_map<uint64_t, const ShardSnapshot::SavedChunk*> chunks_;
};

NStepItem ReadNStepItem(rpc::WireReader& reader, const ChunkIndex& index) {
  NStepItem item;
  const auto serial = reader.Read<uint64_t>("first");
  item.num_chunks = reader.Read<int64_t>("num_groups");
  item.step = reader.Read<int64_t>("step");
  item.n = reader.Read<int64_t>("n");
  item.reward = reader.Read<float>("reward");
  item.discount = reader.Read<float>("discount");
  const bool has_priority = reader.ReadBool("has_priority");
  const auto priority = reader.Read<float>("priority");
  if (has_priority) item.priority = priority;
  item.first =
      index.FindRange(serial, item.num_chunks, item.step, item.step + item.n);
  return item;
}

TableItem ToItem(const ItemRecord& record, const ChunkIndex& index) {
  if (!IsPriority(static_cast<double>(record.priority))) {
    throw IoError(
        fmt::format("checkpoint: priority {} of slot {} is out of range",
                    record.priority, record.slot));
  }
  return {.first = index.FindRange(record.first_serial, record.num_chunks,
                                   record.step, record.step + record.n),
          .order = record.order,
          .generation = record.generation,
          .step = record.step,
          .times_sampled = record.times_sampled,
          .reward = record.reward,
          .discount = record.discount,
          .priority = record.priority,
          .n = record.n,
          .num_chunks = record.num_chunks};
}

ShardSnapshot::SavedTable ReadTable(rpc::WireReader& reader,
                                    const ChunkIndex& index) {
  ShardSnapshot::SavedTable table;
  table.name = reader.ReadString("table", kMaxTableNameBytes);
  table.n_step.n_step = reader.Read<int64_t>("n_step");
  table.n_step.discount = reader.Read<double>("discount");
  table.n_step.stack = reader.Read<int64_t>("stack");
  TableContents& contents = table.contents;
  contents.limiter = ReadLimiter(reader);
  contents.max_priority = reader.Read<float>("max_priority");
  contents.max_generation = reader.Read<uint32_t>("max_generation");
  table.random_position = reader.Read<uint64_t>("random_position");
  table.updates = reader.Read<int64_t>("updates");
  table.late_updates = reader.Read<int64_t>("late_updates");
  const auto num_slots = reader.Read<uint64_t>("num_slots");
  const auto records = ReadRecords<ItemRecord>(reader, "items");
  contents.free_slots = reader.ReadArray<uint32_t>("free_slots", kMaxCount);
  if (num_slots != records.size() + contents.free_slots.size()) {
    throw IoError(fmt::format(
        "checkpoint: table '{}' has {} slots, {} items and {} free slots",
        table.name, num_slots, records.size(), contents.free_slots.size()));
  }
  // every slot once, either taken or free
  contents.items.resize(num_slots);
  std::vector<bool> is_seen(num_slots, false);
  const auto see = [&](uint32_t slot) {
    if (slot >= num_slots || is_seen[slot]) {
      throw IoError(
          fmt::format("checkpoint: table '{}' has slot {} twice, or "
                      "only {} slots",
                      table.name, slot, num_slots));
    }
    is_seen[slot] = true;
  };
  for (const ItemRecord& record : records) {
    see(record.slot);
    contents.items[record.slot] = ToItem(record, index);
  }
  for (const uint32_t slot : contents.free_slots) see(slot);
  return table;
}

ShardSnapshot::SavedWriter ReadSavedWriter(rpc::WireReader& reader,
                                           const ChunkIndex& index,
                                           size_t num_tables) {
  ShardSnapshot::SavedWriter saved;
  saved.id = reader.Read<uint64_t>("writer");
  saved.last_sequence = reader.Read<uint64_t>("last_sequence");
  saved.episode = reader.Read<uint64_t>("episode");
  saved.next_step = reader.Read<int64_t>("next_step");
  saved.steps = reader.Read<int64_t>("steps");
  saved.is_open = reader.ReadBool("is_open");
  saved.is_connected = reader.ReadBool("is_connected");
  const auto num_assemblers = reader.Read<uint32_t>("num_assemblers");
  if (num_assemblers != (saved.is_connected ? num_tables : 0)) {
    throw IoError(
        fmt::format("checkpoint: writer {} has {} assemblers for {} "
                    "tables",
                    saved.id, num_assemblers, num_tables));
  }
  for (uint32_t i = 0; i < num_assemblers; ++i) {
    ShardSnapshot::SavedAssembler assembler;
    for (const uint64_t serial :
         reader.ReadArray<uint64_t>("open_groups", kMaxCount)) {
      assembler.chunks.push_back(index.Find(serial));
    }
    assembler.next_step = reader.Read<int64_t>("next_step");
    const auto num_waiting = reader.Read<uint32_t>("num_waiting");
    for (uint32_t j = 0; j < num_waiting; ++j) {
      assembler.waiting.push_back(ReadNStepItem(reader, index));
    }
    saved.assemblers.push_back(std::move(assembler));
  }
  return saved;
}

}  // namespace

std::vector<std::byte> EncodeLimiters(const LimiterStates& states) {
  rpc::WireWriter writer;
  writer.Write(static_cast<uint32_t>(states.size()));
  for (const auto& [table, limiter] : states) {
    writer.WriteString(table);
    WriteLimiter(writer, limiter);
  }
  return {writer.bytes().begin(), writer.bytes().end()};
}

LimiterStates DecodeLimiters(std::span<const std::byte> bytes) {
  LimiterStates states;
  try {
    rpc::WireReader reader("rate limiters", bytes);
    const auto num_tables = reader.Read<uint32_t>("num_tables");
    for (uint32_t i = 0; i < num_tables; ++i) {
      const std::string table(reader.ReadString("table", kMaxTableNameBytes));
      states[table] = ReadLimiter(reader);
    }
    reader.Finish();
  } catch (const rpc::MalformedMessage& e) {
    throw IoError(e.what());
  }
  return states;
}

std::vector<std::byte> EncodeSnapshot(
    const ShardSnapshot& snapshot,
    const std::function<ChunkLocation(uint64_t serial)>& location) {
  rpc::WireWriter writer;
  std::vector<PlaceRecord> places;
  places.reserve(snapshot.chunks.size());
  for (const ShardSnapshot::SavedChunk& saved : snapshot.chunks) {
    const ChunkLocation place = location(saved.chunk->serial);
    places.push_back(
        {saved.chunk->serial, saved.next_serial, place.segment, place.offset});
  }
  WriteRecords(writer, places);
  writer.Write(snapshot.last_serial);
  writer.Write(static_cast<uint32_t>(snapshot.tables.size()));
  for (const auto& table : snapshot.tables) WriteTable(writer, table);
  writer.Write(static_cast<uint32_t>(snapshot.writers.size()));
  for (const auto& saved : snapshot.writers) WriteSavedWriter(writer, saved);
  writer.WriteArray<int64_t>(snapshot.counters);
  WriteWindows(writer, snapshot.tables);
  return {writer.bytes().begin(), writer.bytes().end()};
}

EncodedSnapshot DecodePlaces(std::span<const std::byte> bytes) {
  EncodedSnapshot encoded;
  try {
    rpc::WireReader reader("checkpoint", bytes);
    uint64_t before = 0;
    for (const auto& record : ReadRecords<PlaceRecord>(reader, "places")) {
      if (record.serial <= before) {
        throw IoError(fmt::format("checkpoint: chunk {} follows chunk {}",
                                  record.serial, before));
      }
      before = record.serial;
      encoded.places.push_back(
          {record.serial, record.next_serial, {record.segment, record.offset}});
    }
    encoded.body = bytes.subspan(reader.offset());
  } catch (const rpc::MalformedMessage& e) {
    throw IoError(e.what());
  }
  return encoded;
}

ShardSnapshot DecodeSnapshot(const EncodedSnapshot& encoded,
                             std::vector<std::shared_ptr<StoredChunk>> chunks) {
  REPLICANT_CHECK_EQ(chunks.size(), encoded.places.size());
  ShardSnapshot snapshot;
  for (size_t i = 0; i < chunks.size(); ++i) {
    auto data = chunks[i]->data;
    snapshot.chunks.push_back(
        {std::move(chunks[i]), std::move(data), encoded.places[i].next_serial});
  }
  const ChunkIndex index(snapshot.chunks);
  try {
    rpc::WireReader reader("checkpoint", encoded.body);
    snapshot.last_serial = reader.Read<uint64_t>("last_serial");
    if (!encoded.places.empty() &&
        snapshot.last_serial < encoded.places.back().serial) {
      throw IoError(fmt::format("checkpoint: last serial {}, but a chunk {}",
                                snapshot.last_serial,
                                encoded.places.back().serial));
    }
    const auto num_tables = reader.Read<uint32_t>("num_tables");
    for (uint32_t i = 0; i < num_tables; ++i) {
      snapshot.tables.push_back(ReadTable(reader, index));
    }
    const auto num_writers = reader.Read<uint32_t>("num_writers");
    for (uint32_t i = 0; i < num_writers; ++i) {
      snapshot.writers.push_back(ReadSavedWriter(reader, index, num_tables));
    }
    snapshot.counters = reader.ReadArray<int64_t>("counters", 64);
    // older snapshots end here: their tables have n-step transitions
    if (reader.offset() < encoded.body.size()) {
      ReadWindows(reader, &snapshot.tables);
    }
    reader.Finish();
  } catch (const rpc::MalformedMessage& e) {
    throw IoError(e.what());
  }
  return snapshot;
}

}  // namespace replicant::replay
