// A chunk passes through the shard like this:
//
//   TryInsert -> FrameStore  (one copy, shared by all tables)
//             -> NStepAssembler per writer and table, which makes items
//             -> Writer::waiting, until the rate limiter admits the item
//             -> Table
//
// Memory is bounded by max_bytes. MakeRoom() takes the chunks from the oldest
// on: it moves a chunk to the disk tier or, without room there, evicts it with
// every item that lies in it. Chunks of open episodes and of waiting items
// stay, and with them their items.
//
// The journal gets a chunk before the store does; after that nothing can fail.
#include "replay/table/shard.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace replicant::replay {

Shard::Shard(ShardConfig config, Clock* clock)
    : config_(std::move(config)),
      clock_(clock),
      store_(config_.disk, config_.shape) {
  if (config_.tables.empty()) throw InvalidArgument("shard: no table");
  if (config_.max_bytes < 1) {
    throw InvalidArgument(
        fmt::format("shard: max_bytes {} must be > 0", config_.max_bytes));
  }
  std::set<std::string> names;
  const RandomStream random(config_.seed, "replay");
  for (const TableConfig& table : config_.tables) {
    if (!names.insert(table.name).second) {
      throw InvalidArgument(
          fmt::format("shard: two tables are called '{}'", table.name));
    }
    // throws here what the first writer would throw
    const NStepAssembler checked(table.n_step, &store_);
    const auto index = static_cast<uint32_t>(tables_.size());
    auto created =
        std::make_unique<Table>(table, config_.limits, index, &store_);
    tables_.push_back(
        {.table = std::move(created), .random = random.Substream(table.name)});
  }
}

Shard::~Shard() {
  for (auto& [id, writer] : writers_) {
    ForgetOpenEpisode(writer);
    ForgetWaitingItems(writer);
  }
}

Shard::TableState& Shard::TableAt(int64_t table) {
  REPLICANT_CHECK(table >= 0 && table < num_tables(), "table {} of {}", table,
                  num_tables());
  return tables_[static_cast<size_t>(table)];
}

std::optional<int64_t> Shard::FindTable(std::string_view name) const {
  for (size_t i = 0; i < config_.tables.size(); ++i) {
    if (config_.tables[i].name == name) return static_cast<int64_t>(i);
  }
  return std::nullopt;
}

// --- writers ---

Shard::Writer& Shard::FindOrAddWriter(uint64_t id) {
  Writer& writer = writers_[id];
  if (writer.assemblers.empty()) {
    for (const TableConfig& table : config_.tables) {
      writer.assemblers.emplace_back(table.n_step, &store_);
    }
    writer.waiting.resize(config_.tables.size());
  }
  return writer;
}

void Shard::RememberClosed(uint64_t id) {
  closed_writers_.push_back(id);
  if (closed_writers_.size() <= kMaxClosedWriters) return;
  const auto oldest = writers_.find(closed_writers_.front());
  closed_writers_.pop_front();
  if (oldest != writers_.end() && oldest->second.assemblers.empty()) {
    writers_.erase(oldest);
  }
}

void Shard::ForgetOpenEpisode(Writer& writer) {
  // the tables wait for different numbers of steps: count the loss of the table
  // with the longest n-step
  int64_t lost = 0;
  for (NStepAssembler& assembler : writer.assemblers) {
    lost = std::max(lost, assembler.num_open_steps());
    assembler.Reset();
  }
  counts_.abandoned_steps += lost;
  writer.is_open = false;
}

void Shard::ForgetWaitingItems(Writer& writer) {
  for (std::deque<NStepItem>& items : writer.waiting) {
    for (const NStepItem& item : items) {
      store_.ReleaseRange(*item.first, item.num_chunks);
    }
    counts_.abandoned_items += static_cast<int64_t>(items.size());
    items.clear();
  }
}

bool Shard::Prepare(Writer& writer, const ChunkView& chunk) {
  if (writer.is_open && chunk.episode() == writer.episode &&
      chunk.first_step() == writer.next_step) {
    return true;
  }
  if (writer.is_open) ForgetOpenEpisode(writer);
  return chunk.first_step() == 0;
}

void Shard::Evict(StoredChunk& chunk) {
  // the chunk, with its list, may be freed with its last item
  const std::vector<StoredChunk::ItemOfTable> items = std::move(chunk.items);
  chunk.items.clear();
  for (const auto& [table, key] : items) {
    Table& owner = *tables_[table].table;
    const int64_t size = owner.size();
    owner.Remove(key);
    counts_.evicted_items += size - owner.size();
  }
}

bool Shard::IsHeld(const StoredChunk& chunk) const {
  const auto found = writers_.find(chunk.data->writer);
  if (found == writers_.end()) return false;
  const Writer& writer = found->second;
  // a writer needs its chunks from the first needed one on
  for (const NStepAssembler& assembler : writer.assemblers) {
    const auto& open = assembler.open_chunks();
    if (!open.empty() && open.front()->serial <= chunk.serial) return true;
  }
  return std::ranges::any_of(writer.waiting, [&](const auto& items) {
    return !items.empty() && items.front().first->serial <= chunk.serial;
  });
}

bool Shard::EvictOldestOnDisk(uint64_t* last_evicted) {
  for (const auto& chunk : store_.chunks()) {
    if (!chunk->data->is_on_disk || chunk->serial <= *last_evicted ||
        IsHeld(*chunk)) {
      continue;
    }
    *last_evicted = chunk->serial;
    Evict(*chunk);
    return true;
  }
  return false;
}

void Shard::NoteDiskError(const IoError& error) {
  ++counts_.disk_errors;
  // log once, until a write succeeds again
  if (!is_disk_failing_) {
    spdlog::error(
        "replay: the disk tier failed, so the oldest steps in memory are "
        "evicted: {}",
        error.what());
  }
  is_disk_failing_ = true;
}

bool Shard::MoveToDisk(StoredChunk& chunk, uint64_t* last_evicted) {
  DiskTier* const disk = store_.disk();
  if (disk == nullptr) return false;
  const std::shared_ptr<StoredChunk> pinned = *chunk.place;
  while (!disk->HasRoomFor(*pinned->data)) {
    if (!EvictOldestOnDisk(last_evicted)) return false;
  }
  // evictions for it may have freed the chunk as well
  if (pinned->uses == 0) return true;
  try {
    store_.MoveToDisk(chunk);
    is_disk_failing_ = false;
    return true;
  } catch (const IoError& e) {
    NoteDiskError(e);
    return false;
  }
}

bool Shard::MakeRoom(int64_t bytes) {
  uint64_t last_moved = 0, last_evicted = 0;
  while (store_.memory_bytes() + bytes > config_.max_bytes) {
    // an eviction may free several chunks, or none if an open episode needs the
    // chunk: find the oldest that was not tried yet
    StoredChunk* chunk = store_.OldestInMemory();
    while (chunk != nullptr && chunk->serial <= last_moved) {
      chunk = store_.NextInMemory(*chunk);
    }
    if (chunk == nullptr) {
      // only the bookkeeping of chunks on disk is left in memory
      if (!EvictOldestOnDisk(&last_evicted)) break;
      continue;
    }
    last_moved = chunk->serial;
    if (!MoveToDisk(*chunk, &last_evicted) && !IsHeld(*chunk)) Evict(*chunk);
  }
  return store_.memory_bytes() + bytes <= config_.max_bytes;
}

bool Shard::Admit(uint64_t id, Writer& writer) {
  bool is_done = true;
  bool is_any_admitted = false;
  for (size_t i = 0; i < tables_.size(); ++i) {
    std::deque<NStepItem>& items = writer.waiting[i];
    if (items.empty()) continue;
    TableState& state = tables_[i];
    const size_t num_waiting = items.size();
    while (!items.empty() && state.table->AdmitInserts(1) == 1) {
      state.table->Insert(items.front());
      items.pop_front();
      state.insert_wait.NoteAdmitted();
    }
    if (items.size() < num_waiting) {
      is_any_admitted = true;
      state.last_writer = id;
      state.last_insert = clock_->Now();
    }
    if (!items.empty()) {
      is_done = false;
      state.insert_wait.NoteRefused(fmt::format("writer {:#x}", id),
                                    clock_->Now());
    }
  }
  if (is_any_admitted) JournalLimiters();
  changed_.NotifyAll();
  return is_done;
}

void Shard::JournalLimiters() {
  if (!journal_.append_limiters || num_unjournaled_samples_ == 0) return;
  LimiterStates states;
  for (const TableState& state : tables_) {
    states[state.table->config().name] = state.table->rate_limiter().state();
  }
  try {
    journal_.append_limiters(states);
    num_unjournaled_samples_ = 0;
  } catch (const IoError&) {
    // draws continue; the next insert reports a disk that cannot be written
  }
}

InsertResult Shard::InsertLocked(uint64_t id, uint64_t sequence,
                                 std::shared_ptr<Chunk> chunk) {
  if (is_closed_) return InsertResult::kClosed;
  Writer& writer = FindOrAddWriter(id);
  // waiting items of earlier chunks go first
  const bool is_admitted = Admit(id, writer);
  if (sequence <= writer.last_sequence) {
    ++counts_.duplicate_groups;
    return is_admitted ? InsertResult::kInserted : InsertResult::kWait;
  }
  const auto bytes =
      static_cast<int64_t>(chunk->block.size()) + kChunkOverheadBytes;
  if (!MakeRoom(bytes)) {
    room_wait_.NoteRefused(fmt::format("writer {:#x}", id), clock_->Now());
    return InsertResult::kNoRoom;
  }
  room_wait_.NoteAdmitted();

  const ChunkView& view = chunk->view;
  if (!Prepare(writer, view)) {
    writer.last_sequence = sequence;
    ++counts_.dropped_groups;
    return InsertResult::kDropped;
  }
  chunk->serial = store_.last_serial() + 1;
  chunk->writer = id;
  chunk->sequence = sequence;
  JournalLimiters();
  // nothing after this can fail
  if (journal_.append_chunk) journal_.append_chunk(*chunk);
  writer.last_sequence = sequence;
  writer.steps += view.num_steps();
  // link the chunk into its episode
  StoredChunk& added =
      store_.Add(std::make_shared<StoredChunk>(std::move(chunk)));
  if (writer.is_open) {
    StoredChunk& previous = *writer.assemblers.front().open_chunks().back();
    previous.next = &added;
    previous.next_serial = added.serial;
  }
  // make the items that it completes
  std::vector<NStepItem> items;
  for (size_t i = 0; i < tables_.size(); ++i) {
    items.clear();
    writer.assemblers[i].Append(added, &items);
    writer.waiting[i].insert(writer.waiting[i].end(), items.begin(),
                             items.end());
  }
  counts_.inserted_steps += view.num_steps();
  writer.is_open = !view.ends_episode();
  writer.episode = view.episode();
  writer.next_step = view.end_observation();
  store_.Release(added);
  return Admit(id, writer) ? InsertResult::kInserted : InsertResult::kWait;
}

InsertResult Shard::TryInsert(uint64_t writer, uint64_t sequence,
                              std::vector<std::byte> block) {
  return TryInsert(writer, sequence,
                   std::make_shared<Chunk>(std::move(block), config_.shape));
}

InsertResult Shard::TryInsert(uint64_t writer, uint64_t sequence,
                              std::shared_ptr<Chunk> chunk) {
  MutexLock lock(mutex_);
  return InsertLocked(writer, sequence, std::move(chunk));
}

InsertResult Shard::Resume(uint64_t writer) {
  MutexLock lock(mutex_);
  if (is_closed_) return InsertResult::kClosed;
  return Admit(writer, FindOrAddWriter(writer)) ? InsertResult::kInserted
                                                : InsertResult::kWait;
}

InsertResult Shard::Insert(uint64_t writer, uint64_t sequence,
                           std::vector<std::byte> block,
                           Clock::TimePoint deadline) {
  auto chunk = std::make_shared<Chunk>(std::move(block), config_.shape);
  MutexLock lock(mutex_);
  InsertResult result = InsertLocked(writer, sequence, std::move(chunk));
  if (result != InsertResult::kWait) return result;
  clock_->WaitUntil(mutex_, changed_, deadline, [&]() REQUIRES(mutex_) {
    if (!is_closed_ && result == InsertResult::kWait && CanAdmit(writer) &&
        Admit(writer, FindOrAddWriter(writer))) {
      result = InsertResult::kInserted;
    }
    return is_closed_ || result == InsertResult::kInserted;
  });
  return is_closed_ && result == InsertResult::kWait ? InsertResult::kClosed
                                                     : result;
}

bool Shard::CanAdmit(uint64_t id) const {
  const auto found = writers_.find(id);
  if (found == writers_.end()) return true;
  const Writer& writer = found->second;
  bool has_waiting = false;
  for (size_t i = 0; i < writer.waiting.size(); ++i) {
    if (writer.waiting[i].empty()) continue;
    has_waiting = true;
    if (tables_[i].table->AdmitInserts(1) == 1) return true;
  }
  // no item waits: another call has admitted or dropped them
  return !has_waiting;
}

int64_t Shard::num_steps() const {
  MutexLock lock(mutex_);
  return counts_.inserted_steps;
}

uint64_t Shard::LastSequence(uint64_t writer) const {
  MutexLock lock(mutex_);
  const auto found = writers_.find(writer);
  return found == writers_.end() ? 0 : found->second.last_sequence;
}

int64_t Shard::StepsOf(uint64_t writer) const {
  MutexLock lock(mutex_);
  const auto found = writers_.find(writer);
  return found == writers_.end() ? 0 : found->second.steps;
}

int64_t Shard::NoteStepsOf(uint64_t writer, int64_t steps) {
  MutexLock lock(mutex_);
  const auto found = writers_.find(writer);
  const int64_t known = found == writers_.end() ? 0 : found->second.steps;
  if (steps <= known) return 0;
  FindOrAddWriter(writer).steps = steps;
  counts_.lost_steps += steps - known;
  return steps - known;
}

std::vector<uint64_t> Shard::OpenWriters() const {
  MutexLock lock(mutex_);
  std::vector<uint64_t> open;
  for (const auto& [id, writer] : writers_) {
    if (!writer.assemblers.empty()) open.push_back(id);
  }
  return open;
}

void Shard::CloseWriters(std::span<const uint64_t> writers) {
  MutexLock lock(mutex_);
  bool is_any_closed = false;
  for (const uint64_t id : writers) {
    const auto found = writers_.find(id);
    if (found == writers_.end()) continue;
    ForgetOpenEpisode(found->second);
    ForgetWaitingItems(found->second);
    found->second.assemblers.clear();
    RememberClosed(id);
    is_any_closed = true;
  }
  if (!is_any_closed) return;
  room_wait_.NoteAdmitted();
  // end the waits of tables for which no other writer waits
  for (size_t i = 0; i < tables_.size(); ++i) {
    const bool is_any_waiting =
        std::any_of(writers_.begin(), writers_.end(), [i](const auto& entry) {
          const auto& waiting = entry.second.waiting;
          return i < waiting.size() && !waiting[i].empty();
        });
    if (!is_any_waiting) tables_[i].insert_wait.NoteAdmitted();
  }
}

void Shard::ForgetSampleWait(int64_t table) {
  MutexLock lock(mutex_);
  TableAt(table).sample_wait.NoteAdmitted();
}

// --- readers ---

int64_t Shard::SampleLocked(int64_t table, int64_t wanted, std::string_view who,
                            SampledBatch* batch) {
  TableState& state = TableAt(table);
  const int64_t drawn = state.table->Sample(wanted, state.random, batch);
  batch->total_steps = counts_.inserted_steps;
  // a reader that gets a part of its batch begins to wait for the rest
  if (drawn > 0) {
    state.sample_wait.NoteAdmitted();
    state.last_reader = who;
    state.last_sample = clock_->Now();
  }
  num_unjournaled_samples_ += drawn;
  if (num_unjournaled_samples_ >= kSamplesPerJournalRecord) JournalLimiters();
  if (drawn < wanted) state.sample_wait.NoteRefused(who, clock_->Now());
  if (drawn > 0) changed_.NotifyAll();
  return drawn;
}

int64_t Shard::TrySample(int64_t table, int64_t wanted, std::string_view who,
                         SampledBatch* batch) {
  MutexLock lock(mutex_);
  return is_closed_ ? 0 : SampleLocked(table, wanted, who, batch);
}

SampleResult Shard::Sample(int64_t table, int64_t count, std::string_view who,
                           Clock::TimePoint deadline, SampledBatch* batch) {
  MutexLock lock(mutex_);
  int64_t missing = count;
  clock_->WaitUntil(mutex_, changed_, deadline, [&]() REQUIRES(mutex_) {
    if (!is_closed_) missing -= SampleLocked(table, missing, who, batch);
    return is_closed_ || missing == 0;
  });
  if (missing == 0) return SampleResult::kOk;
  return is_closed_ ? SampleResult::kClosed : SampleResult::kTimeout;
}

Shard::ChunkRange Shard::Chunks(std::optional<uint64_t> after,
                                uint64_t room_frames, size_t max_chunks,
                                size_t max_bytes) const {
  const MutexLock lock(mutex_);
  auto next =
      after ? store_.FirstAfter(*after) : store_.FirstOfNewest(room_frames);
  const auto end = store_.chunks().end();
  ChunkRange range;
  range.last = store_.last_serial();
  range.after = after ? *after : next != end ? (*next)->serial - 1 : range.last;
  size_t bytes = 0;
  for (; next != end; ++next) {
    const Chunk& chunk = *(*next)->data;
    bytes += chunk.view.frames().size();
    const bool is_full = range.chunks.size() == max_chunks ||
                         (bytes > max_bytes && !range.chunks.empty());
    if (is_full) {
      range.last = range.chunks.back()->serial;
      break;
    }
    range.chunks.push_back((*next)->data);
  }
  range.last = std::max(range.last, range.after);
  return range;
}

int64_t Shard::UpdatePriorities(int64_t table,
                                std::span<const PriorityUpdate> updates) {
  MutexLock lock(mutex_);
  TableState& state = TableAt(table);
  const int64_t updated = state.table->UpdatePriorities(updates);
  state.updates += updated;
  state.late_updates += static_cast<int64_t>(updates.size()) - updated;
  changed_.NotifyAll();
  return updated;
}

void Shard::Close() {
  MutexLock lock(mutex_);
  is_closed_ = true;
  changed_.NotifyAll();
}

WaitStatus Shard::StatusOf(const WaitRecord& record, std::string why) const {
  if (!record.is_waiting()) return {};
  return {.is_waiting = true,
          .who = record.who(),
          .why = std::move(why),
          .waiting_s = record.waiting_s(clock_->Now())};
}

StalledSide Shard::StalledSideOf(const TableState& state) const {
  const Clock::TimePoint now = clock_->Now();
  const auto has_stalled = [now](const WaitRecord& wait) {
    return wait.waiting_s(now) >= ToSeconds(kStallTime);
  };
  const auto seconds_since = [now](Clock::TimePoint since) {
    return ToSeconds(now - since);
  };
  const bool are_inserts_waiting = has_stalled(state.insert_wait);
  if (are_inserts_waiting == has_stalled(state.sample_wait)) return {};
  StalledSide stalled;
  if (are_inserts_waiting) {
    const bool is_any = !state.last_reader.empty();
    stalled = {"readers", state.last_reader,
               is_any ? seconds_since(state.last_sample)
                      : state.insert_wait.waiting_s(now)};
  } else {
    const bool is_any = state.last_writer != 0;
    stalled = {"writers",
               is_any ? fmt::format("writer {:#x}", state.last_writer) : "",
               is_any ? seconds_since(state.last_insert)
                      : state.sample_wait.waiting_s(now)};
  }
  // writers that insert may have too few items yet
  return stalled.idle_s < ToSeconds(kStallTime) ? StalledSide() : stalled;
}

std::string Shard::WhySamplesWait(const Table& table) const {
  const std::string why = table.rate_limiter().WhySamplesWait(table.size());
  return table.size() < table.rate_limiter().min_size_to_sample() &&
                 counts_.evicted_items > 0
             ? fmt::format("{}; max_bytes {} evicted {} items", why,
                           config_.max_bytes, counts_.evicted_items)
             : why;
}

int64_t Shard::NumOpenWriters() const {
  return std::count_if(writers_.begin(), writers_.end(), [](const auto& entry) {
    return !entry.second.assemblers.empty();
  });
}

std::string Shard::WhyNoRoom() const {
  int64_t num_holding = 0;
  for (const auto& [id, writer] : writers_) {
    const bool has_waiting =
        std::any_of(writer.waiting.begin(), writer.waiting.end(),
                    [](const auto& items) { return !items.empty(); });
    if (writer.is_open || has_waiting) ++num_holding;
  }
  return fmt::format(
      "no room: open episodes and waiting items of {} writers hold {} of "
      "max_bytes {}; hint: raise replay.max_bytes",
      num_holding, store_.memory_bytes(), config_.max_bytes);
}

ShardStatus Shard::Status() const {
  MutexLock lock(mutex_);
  ShardStatus status = counts_;
  for (const TableState& state : tables_) {
    const Table& table = *state.table;
    const RateLimiter& limiter = table.rate_limiter();
    status.tables.push_back(
        {.name = table.config().name,
         .size = table.size(),
         .max_size = table.config().max_size,
         .mass = table.mass(),
         .min_size_to_sample = limiter.min_size_to_sample(),
         .inserts = limiter.inserts(),
         .samples = limiter.samples(),
         .error = limiter.error(),
         .updates = state.updates,
         .late_updates = state.late_updates,
         .insert_wait =
             StatusOf(state.insert_wait, limiter.WhyInsertsWait(table.size())),
         .sample_wait = StatusOf(state.sample_wait, WhySamplesWait(table)),
         .stalled = StalledSideOf(state)});
  }
  status.size_bytes = store_.memory_bytes();
  if (room_wait_.is_waiting()) {
    status.room_wait = StatusOf(room_wait_, WhyNoRoom());
  }
  status.num_chunks_on_disk = store_.num_on_disk();
  if (const DiskTier* disk = store_.disk(); disk != nullptr) {
    status.disk_bytes = disk->size_bytes();
    status.max_disk_bytes = disk->max_bytes();
  }
  status.max_bytes = config_.max_bytes;
  status.num_chunks = store_.num_chunks();
  status.num_writers = NumOpenWriters();
  return status;
}

}  // namespace replicant::replay
