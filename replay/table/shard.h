#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "replay/format/protocol.h"
#include "replay/store/frame_store.h"
#include "replay/table/n_step.h"
#include "replay/table/snapshot.h"
#include "replay/table/table.h"

namespace replicant::replay {

struct ShardConfig {
  StepShape shape;
  // Whether the rows of observations and actions are f32. Chunks with a number
  // that is not finite are then refused, and left out of a restored checkpoint.
  bool has_float_rows = false;
  std::vector<TableConfig> tables;  // at least one, with different names
  // Memory for chunks, counted as in replay/store/frame_store.h. Beyond it
  // the oldest chunks move to the disk tier. Without a disk tier, or if it is
  // full, they are evicted together with every item that needs them.
  int64_t max_bytes = int64_t{1} << 33;
  DiskTierConfig disk;
  // The limits of the clients; each table sets max_size and max_times_sampled
  // itself.
  RateLimiterLimits limits;
  uint64_t seed = 0;
};

enum class [[nodiscard]] InsertResult{
    // The steps and all completed items are inserted.
    kInserted,
    // The steps are inserted, but some of their items wait for a rate limiter.
    // Resume() continues; the writer need not send them again.
    kWait,
    // The steps continue no known episode; they are dropped and counted. The
    // writer should continue with its next episode.
    kDropped,
    // Nothing is inserted: open episodes hold max_bytes of memory. The writer
    // should send the chunk again later.
    kNoRoom,
    // The shard is closed.
    kClosed};

enum class [[nodiscard]] SampleResult{kOk, kTimeout, kClosed};

// The wait of one side of a table, if it waits.
struct WaitStatus {
  bool is_waiting = false;
  std::string who;
  std::string why;
  double waiting_s = 0.0;
};

// The side of a table that makes the other side wait.
struct StalledSide {
  std::string side;  // "writers" or "readers"; empty for neither
  std::string last;  // the client that was served last; empty for none so far
  double idle_s = 0.0;  // since then, or since the other side began to wait
};

struct TableStatus {
  std::string name;
  int64_t size = 0, max_size = 0;
  double mass = 0.0;
  int64_t min_size_to_sample = 0;  // below it no item is drawn
  int64_t inserts = 0, samples = 0;
  double error = 0.0;  // of replay/table/rate_limiter.h
  int64_t updates = 0, late_updates = 0;
  WaitStatus insert_wait, sample_wait;
  // Set once the other side has waited for kStallTime.
  StalledSide stalled;
};
inline constexpr Clock::Duration kStallTime = std::chrono::seconds(2);
// Maximum number of closed writers whose last sequence is remembered.
inline constexpr size_t kMaxClosedWriters = 65536;

struct ShardStatus {
  std::vector<TableStatus> tables;
  int64_t size_bytes = 0, max_bytes = 0;  // of memory
  // Set while chunks find no room in memory, although nothing more can be
  // evicted.
  WaitStatus room_wait;
  int64_t disk_bytes = 0, max_disk_bytes = 0;
  int64_t num_chunks = 0, num_writers = 0;
  int64_t num_chunks_on_disk = 0;
  int64_t inserted_steps = 0;
  int64_t duplicate_groups = 0;  // sent again by a writer
  int64_t dropped_groups = 0;    // continued no known episode
  // from which no item began: their episode never ended
  int64_t abandoned_steps = 0;
  int64_t abandoned_items = 0;  // still waiting when their writer was closed
  int64_t evicted_items = 0;    // removed to stay below max_bytes
  int64_t disk_errors = 0;      // chunks that could not move to the disk
  int64_t lost_steps = 0;       // acknowledged before a crash, and lost in it
};

// The state of one replay service: its tables, their steps, and the position of
// each writer. replay/service/service.h adds the network.
//
// Each writer has a unique id and numbers its chunks 1, 2, 3, ... A chunk
// with a known number is ignored, so a writer may send a chunk twice. A chunk
// that begins an episode, or does not continue the open one, ends the open
// episode without its last steps; these are counted.
//
// Thread-safety: all methods may be called from any thread. One lock guards
// everything; chunks are checked and copied outside it.
class Shard {
 public:
  // Throws InvalidArgument for unusable settings. `clock` outlives the
  // shard.
  Shard(ShardConfig config, Clock* clock);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // --- writers ---

  // Inserts a chunk (replay/format/chunk.h) without waiting. Throws
  // IoError, changing nothing, if the chunk breaks the format.
  InsertResult TryInsert(uint64_t writer, uint64_t sequence,
                         std::vector<std::byte> block);
  // The same for a chunk that is checked already.
  InsertResult TryInsert(uint64_t writer, uint64_t sequence,
                         std::shared_ptr<Chunk> chunk);
  // Inserts the waiting items of `writer` that are admitted now; kInserted if
  // none is left.
  InsertResult Resume(uint64_t writer);
  // TryInsert(), then Resume() until all items are inserted; kWait if that
  // takes until `deadline`.
  InsertResult Insert(uint64_t writer, uint64_t sequence,
                      std::vector<std::byte> block, Clock::TimePoint deadline);
  // Number of steps that writers have inserted so far, including steps that
  // were removed since.
  int64_t num_steps() const;
  // The sequence of the last inserted chunk of `writer`; 0 if none.
  uint64_t LastSequence(uint64_t writer) const;
  // Number of steps that `writer` has inserted.
  int64_t StepsOf(uint64_t writer) const;
  // Reports that `steps` steps of the writer were acknowledged, perhaps by an
  // earlier service. Returns how many this shard lacks, as after a crash
  // without a journal, and counts them as lost; no other count includes them.
  int64_t NoteStepsOf(uint64_t writer, int64_t steps);
  // The writers that were not closed, ascending.
  std::vector<uint64_t> OpenWriters() const;
  // Drops the writer's open episode and waiting items. Its last sequence is
  // remembered, in case it returns, until kMaxClosedWriters others were
  // closed.
  void CloseWriter(uint64_t writer) { CloseWriters({&writer, 1}); }
  void CloseWriters(std::span<const uint64_t> writers);

  // --- readers; `table` is the number of a table in the config (checked) ---

  int64_t num_tables() const { return static_cast<int64_t>(tables_.size()); }
  // The number of a table by name.
  std::optional<int64_t> FindTable(std::string_view name) const;

  // Adds to `batch` as many items as are admitted now, at most `wanted`, and
  // returns their number. If it is 0, the status shows `who` as waiting.
  int64_t TrySample(int64_t table, int64_t wanted, std::string_view who,
                    SampledBatch* batch);
  // Adds `count` items to `batch` as they are admitted. After kTimeout or
  // kClosed the batch holds the items drawn until then.
  SampleResult Sample(int64_t table, int64_t count, std::string_view who,
                      Clock::TimePoint deadline, SampledBatch* batch);
  // Removes a waiting reader that has gone from the status.
  void ForgetSampleWait(int64_t table);
  // Chunks in the order of their serials, for readers that keep frames: all
  // with serials in (after, last] that the shard holds.
  struct ChunkRange {
    uint64_t after = 0, last = 0;
    std::vector<std::shared_ptr<const Chunk>> chunks;

    // Their frame blocks, which these chunks hold.
    FramesReply ToReply(uint64_t token) const;
  };
  // The chunks after `after`, or without it the newest that have together at
  // most `room_frames` frames; of these the oldest, at most `max_chunks` and at
  // least one, with blocks of together at most `max_bytes`.
  ChunkRange Chunks(std::optional<uint64_t> after, uint64_t room_frames,
                    size_t max_chunks, size_t max_bytes) const;
  // Returns how many of the keys name a live item. Throws like
  // Table::UpdatePriorities().
  int64_t UpdatePriorities(int64_t table,
                           std::span<const PriorityUpdate> updates);

  // --- checkpoints (replay/checkpoint/checkpointer.h) ---

  // Returns the present state. Holds the lock while copying the items.
  ShardSnapshot TakeSnapshot() const;
  // Makes a chunk of a snapshot, for Restore(). Its bytes are on disk if
  // `wants_disk` and there is room. Throws IoError like Chunk.
  std::shared_ptr<StoredChunk> MakeChunk(std::vector<std::byte> block,
                                         uint64_t serial, uint64_t writer,
                                         uint64_t sequence, bool wants_disk);
  // Restores a snapshot. Throws InvalidArgument, leaving the shard as it was,
  // if this config lacks one of its tables, or if a table would make other
  // items than the snapshot holds (n_step, discount, stack). Precondition:
  // `snapshot` is from DecodeSnapshot() and used once; nothing was inserted yet
  // (checked; aborts).
  void Restore(const ShardSnapshot& snapshot);
  // Records changes between checkpoints. Both functions are called under the
  // lock, and may throw IoError.
  struct Journal {
    // Takes the chunk of an insert before the insert returns. If the chunk
    // cannot be written, the insert changes nothing.
    std::function<void(const Chunk&)> append_chunk;
    // Takes the limiters' states if items were drawn since the last call:
    // before a chunk, after waiting items were admitted, and every
    // kSamplesPerJournalRecord samples. After a failure, the next call includes
    // the missing samples.
    std::function<void(const LimiterStates&)> append_limiters;
  };
  static constexpr int64_t kSamplesPerJournalRecord = 1024;
  // Writes a journal from now on; an empty one stops it.
  void SetJournal(Journal journal);
  // Takes over limiters' states from the journal and admits the items that they
  // permit.
  void ReplayLimiters(const LimiterStates& states);
  // Inserts a chunk from the journal in its original place.
  InsertResult Replay(uint64_t serial, uint64_t writer, uint64_t sequence,
                      std::vector<std::byte> block);

  // The serial of the chunk inserted last; 0 if none.
  uint64_t last_serial() const;

  // Ends all current and future waits, inserts and samples with kClosed.
  void Close();

  ShardStatus Status() const;
  const ShardConfig& config() const { return config_; }

 private:
  struct Writer {
    uint64_t last_sequence = 0;
    int64_t steps = 0;
    bool is_open = false;  // in the middle of an episode
    uint64_t episode = 0;
    int64_t next_step = 0;
    std::vector<NStepAssembler> assemblers;      // by table
    std::vector<std::deque<NStepItem>> waiting;  // by table
  };
  struct TableState {
    std::unique_ptr<Table> table;
    RandomStream random;
    WaitRecord insert_wait, sample_wait;
    uint64_t last_writer = 0;
    std::string last_reader;
    Clock::TimePoint last_insert, last_sample;
    int64_t updates = 0, late_updates = 0;
  };

  void RestoreWriter(const ShardSnapshot::SavedWriter& saved,
                     bool keeps_episode) REQUIRES(mutex_);
  Writer& FindOrAddWriter(uint64_t id) REQUIRES(mutex_);
  // Whether an open episode or a waiting item needs the chunk.
  bool IsHeld(const StoredChunk& chunk) const REQUIRES(mutex_);
  void RememberClosed(uint64_t id) REQUIRES(mutex_);
  // Whether `chunk` continues the writer's episode or begins one.
  bool Prepare(Writer& writer, const ChunkView& chunk) REQUIRES(mutex_);
  void ForgetOpenEpisode(Writer& writer) REQUIRES(mutex_);
  void ForgetWaitingItems(Writer& writer) REQUIRES(mutex_);
  bool MakeRoom(int64_t bytes) REQUIRES(mutex_);
  // Moves the chunk to disk; true if it is now there, or evicted. May evict
  // chunks on disk with serials above `last_evicted`, and raises that.
  bool MoveToDisk(StoredChunk& chunk, uint64_t* last_evicted) REQUIRES(mutex_);
  bool EvictOldestOnDisk(uint64_t* last_evicted) REQUIRES(mutex_);
  void NoteDiskError(const IoError& error) REQUIRES(mutex_);
  void Evict(StoredChunk& chunk) REQUIRES(mutex_);
  InsertResult InsertLocked(uint64_t id, uint64_t sequence,
                            std::shared_ptr<Chunk> chunk) REQUIRES(mutex_);
  // Moves admitted waiting items into the tables; true if none is left.
  bool Admit(uint64_t id, Writer& writer) REQUIRES(mutex_);
  // Writes the limiters' states to the journal if they are due.
  void JournalLimiters() REQUIRES(mutex_);
  // Whether Admit() would change anything.
  bool CanAdmit(uint64_t id) const REQUIRES(mutex_);
  int64_t SampleLocked(int64_t table, int64_t wanted, std::string_view who,
                       SampledBatch* batch) REQUIRES(mutex_);
  WaitStatus StatusOf(const WaitRecord& record, std::string why) const
      REQUIRES(mutex_);
  int64_t NumOpenWriters() const REQUIRES(mutex_);
  // Describes what holds the memory that chunks wait for.
  std::string WhyNoRoom() const REQUIRES(mutex_);
  StalledSide StalledSideOf(const TableState& state) const REQUIRES(mutex_);
  std::string WhySamplesWait(const Table& table) const REQUIRES(mutex_);
  TableState& TableAt(int64_t table) REQUIRES(mutex_);

  const ShardConfig config_;
  Clock* const clock_;

  mutable Mutex mutex_;
  // notified when a wait of Insert() or Sample() may be over
  CondVar changed_;
  bool is_closed_ GUARDED_BY(mutex_) = false;
  Journal journal_ GUARDED_BY(mutex_);
  // Samples since the journal last got the limiters' states.
  int64_t num_unjournaled_samples_ GUARDED_BY(mutex_) = 0;
  // before the tables and writers, which release their uses of it
  FrameStore store_ GUARDED_BY(mutex_);
  bool is_disk_failing_ GUARDED_BY(mutex_) = false;
  // the vector itself never changes
  std::vector<TableState> tables_;
  std::map<uint64_t, Writer> writers_ GUARDED_BY(mutex_);
  // in the order of closing; may include writers that have returned
  std::deque<uint64_t> closed_writers_ GUARDED_BY(mutex_);
  WaitRecord room_wait_ GUARDED_BY(mutex_);
  ShardStatus counts_ GUARDED_BY(mutex_);  // only its counters are used
};

}  // namespace replicant::replay
