// Shard's part in checkpoints and the chunks that it gives to readers; the rest
// of the class is in replay/table/shard.cc.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "replay/table/shard.h"

namespace replicant::replay {
namespace {

// The counters of a status in the order in which they are declared; one list
// for both directions.
auto CountersOf(ShardStatus& status) {
  return std::array{&status.inserted_steps,  &status.duplicate_groups,
                    &status.dropped_groups,  &status.abandoned_steps,
                    &status.abandoned_items, &status.evicted_items,
                    &status.lost_steps,      &status.disk_errors};
}

void CheckSameItems(const TableConfig& config, const NStepConfig& saved) {
  if (config.n_step == saved) return;
  throw InvalidArgument(fmt::format(
      "table '{}': the checkpoint's items have {}, but the configuration says "
      "{}; hint: start afresh with another checkpoint_folder",
      config.name, ToString(saved), ToString(config.n_step)));
}

// A missing table would lose its items.
void CheckHasTable(const ShardConfig& config, const std::string& name) {
  std::vector<std::string_view> names;
  for (const TableConfig& table : config.tables) names.push_back(table.name);
  if (std::ranges::find(names, name) != names.end()) return;
  throw InvalidArgument(fmt::format(
      "table '{}' of the checkpoint is not configured; configured: {}; hint: "
      "configure it, or start afresh with another checkpoint_folder",
      name, fmt::join(names, ", ")));
}

}  // namespace

ShardSnapshot Shard::TakeSnapshot() const {
  ShardSnapshot snapshot;
  snapshot.tables.resize(tables_.size());
  for (size_t i = 0; i < tables_.size(); ++i) {
    size_t num_slots = 0;
    {
      MutexLock lock(mutex_);
      num_slots = tables_[i].table->num_slots();
    }
    // page faults of new memory cost more than the copy: touch the memory
    // before the lock is taken
    snapshot.tables[i].contents.items.resize(num_slots);
  }
  MutexLock lock(mutex_);
  snapshot.chunks.reserve(static_cast<size_t>(store_.num_chunks()));
  for (const std::shared_ptr<StoredChunk>& chunk : store_.chunks()) {
    snapshot.chunks.push_back({chunk, chunk->data, chunk->next_serial});
  }
  snapshot.last_serial = store_.last_serial();
  for (size_t i = 0; i < tables_.size(); ++i) {
    const TableState& state = tables_[i];
    ShardSnapshot::SavedTable& saved = snapshot.tables[i];
    saved.n_step = state.table->config().n_step;
    saved.name = state.table->config().name;
    state.table->ReadContents(&saved.contents);
    saved.random_position = state.random.position();
    saved.updates = state.updates;
    saved.late_updates = state.late_updates;
  }
  for (const auto& [id, writer] : writers_) {
    ShardSnapshot::SavedWriter saved = {
        .id = id,
        .last_sequence = writer.last_sequence,
        .episode = writer.episode,
        .next_step = writer.next_step,
        .steps = writer.steps,
        .is_open = writer.is_open,
        .is_connected = !writer.assemblers.empty()};
    for (size_t i = 0; i < writer.assemblers.size(); ++i) {
      const NStepAssembler& assembler = writer.assemblers[i];
      saved.assemblers.push_back(
          {.chunks = assembler.open_chunks(),
           .next_step = assembler.next_step(),
           .waiting = {writer.waiting[i].begin(), writer.waiting[i].end()}});
    }
    snapshot.writers.push_back(std::move(saved));
  }
  ShardStatus counts = counts_;
  for (const int64_t* counter : CountersOf(counts)) {
    snapshot.counters.push_back(*counter);
  }
  return snapshot;
}

void Shard::Restore(const ShardSnapshot& snapshot) {
  MutexLock lock(mutex_);
  REPLICANT_CHECK(store_.last_serial() == 0 && writers_.empty(),
                  "a shard that has taken in steps");
  std::map<std::string, const ShardSnapshot::SavedTable*> saved_tables;
  for (const auto& saved : snapshot.tables) {
    CheckHasTable(config_, saved.name);
    saved_tables[saved.name] = &saved;
  }
  bool is_same = snapshot.tables.size() == tables_.size();
  for (size_t i = 0; i < tables_.size(); ++i) {
    const auto found = saved_tables.find(config_.tables[i].name);
    if (found == saved_tables.end()) {
      is_same = false;
      continue;
    }
    CheckSameItems(config_.tables[i], found->second->n_step);
    is_same = is_same && snapshot.tables[i].name == config_.tables[i].name;
  }

  std::map<uint64_t, StoredChunk*> by_serial;
  for (const auto& saved : snapshot.chunks) {
    by_serial[saved.chunk->serial] = &store_.Add(saved.chunk);
  }
  for (const auto& saved : snapshot.chunks) {
    const auto next = by_serial.find(saved.next_serial);
    saved.chunk->next = next == by_serial.end() ? nullptr : next->second;
    saved.chunk->next_serial = saved.next_serial;
  }
  store_.set_last_serial(snapshot.last_serial);

  for (TableState& state : tables_) {
    const auto found = saved_tables.find(state.table->config().name);
    if (found == saved_tables.end()) continue;
    const ShardSnapshot::SavedTable& saved = *found->second;
    state.table->Restore(saved.contents);
    state.random.set_position(saved.random_position);
    state.updates = saved.updates;
    state.late_updates = saved.late_updates;
  }
  // an open episode goes on only if every table has seen its beginning
  for (const auto& saved : snapshot.writers) RestoreWriter(saved, is_same);
  const auto counters = CountersOf(counts_);
  for (size_t i = 0; i < counters.size() && i < snapshot.counters.size(); ++i) {
    *counters[i] = snapshot.counters[i];
  }
  // release the use of Add(): chunks that no item of this config needs are
  // freed
  for (const auto& [serial, chunk] : by_serial) store_.Release(*chunk);
  MakeRoom(0);
}

void Shard::RestoreWriter(const ShardSnapshot::SavedWriter& saved,
                          bool keeps_episode) {
  Writer& writer = writers_[saved.id];
  writer.last_sequence = saved.last_sequence;
  writer.steps = saved.steps;
  if (!saved.is_connected || !keeps_episode) {
    RememberClosed(saved.id);
    return;
  }
  FindOrAddWriter(saved.id);
  writer.is_open = saved.is_open;
  writer.episode = saved.episode;
  writer.next_step = saved.next_step;
  for (size_t i = 0; i < saved.assemblers.size(); ++i) {
    const ShardSnapshot::SavedAssembler& from = saved.assemblers[i];
    writer.assemblers[i].Restore(from.chunks, from.next_step);
    for (const NStepItem& item : from.waiting) {
      store_.UseRange(*item.first, item.num_chunks);
      writer.waiting[i].push_back(item);
    }
  }
}

std::shared_ptr<StoredChunk> Shard::MakeChunk(std::vector<std::byte> block,
                                              uint64_t serial, uint64_t writer,
                                              uint64_t sequence,
                                              bool wants_disk) {
  auto chunk = std::make_shared<Chunk>(std::move(block), config_.shape);
  chunk->serial = serial;
  chunk->writer = writer;
  chunk->sequence = sequence;
  MutexLock lock(mutex_);
  DiskTier* const disk = store_.disk();
  if (wants_disk && disk != nullptr && disk->HasRoomFor(*chunk)) {
    try {
      DiskTier::Moved moved = disk->Write(*chunk, config_.shape);
      return std::make_shared<StoredChunk>(std::move(moved.chunk),
                                           std::move(moved.use));
    } catch (const IoError& e) {
      NoteDiskError(e);
    }
  }
  return std::make_shared<StoredChunk>(std::move(chunk));
}

uint64_t Shard::last_serial() const {
  MutexLock lock(mutex_);
  return store_.last_serial();
}

void Shard::SetJournal(Journal journal) {
  MutexLock lock(mutex_);
  journal_ = std::move(journal);
}

void Shard::ReplayLimiters(const LimiterStates& states) {
  MutexLock lock(mutex_);
  for (TableState& state : tables_) {
    const auto found = states.find(state.table->config().name);
    if (found != states.end()) state.table->RestoreSamples(found->second);
  }
  for (auto& [id, writer] : writers_) {
    if (!writer.waiting.empty()) Admit(id, writer);
  }
}

InsertResult Shard::Replay(uint64_t serial, uint64_t writer, uint64_t sequence,
                           std::vector<std::byte> block) {
  auto chunk = std::make_shared<Chunk>(std::move(block), config_.shape);
  MutexLock lock(mutex_);
  REPLICANT_CHECK_GT(serial, store_.last_serial());
  store_.set_last_serial(serial - 1);
  return InsertLocked(writer, sequence, std::move(chunk));
}

FramesReply Shard::ChunkRange::ToReply(uint64_t token) const {
  FramesReply reply{.token = token,
                    .after_serial = after,
                    .last_serial = last,
                    .serials = {},
                    .blocks = {}};
  for (const auto& chunk : chunks) {
    reply.serials.push_back(chunk->serial);
    reply.blocks.push_back(chunk->view.frames());
  }
  return reply;
}

}  // namespace replicant::replay
