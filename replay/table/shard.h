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

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/rng.h"
#include "replay/store/frame_store.h"
#include "replay/table/n_step.h"
#include "replay/table/snapshot.h"
#include "replay/table/table.h"

namespace replicant::replay {

struct ShardConfig {
  StepShape shape;
  std::vector<TableConfig> tables;  // at least one, of different names
  // Memory for step groups; replay/store/frame_store.h says what counts. The
  // oldest beyond it go to the disk tier, and where there is none, or no room,
  // they are evicted with every item that lies in them.
  int64_t max_bytes = int64_t{1} << 33;
  DiskTierConfig disk;
  // What the clients keep in flight; max_size and max_times_sampled are each
  // table's own.
  RateLimiterLimits limits;
  uint64_t seed = 0;
};

enum class [[nodiscard]] InsertResult{
    // The steps are in, and every item that they completed.
    kInserted,
    // The steps are in, but items of them wait for a rate limiter. Nothing has
    // to
    // be sent again: Resume() goes on.
    kWait,
    // The steps do not continue an episode that is known here: the writer
    // should
    // go on with its next episode. They were counted and forgotten.
    kDropped,
    // Not in: open episodes hold the memory up to max_bytes. Send it again
    // later.
    kNoRoom,
    // The shard is closed.
    kClosed};

enum class [[nodiscard]] SampleResult{kOk, kTimeout, kClosed};

// Why one side of a table waits.
struct WaitStatus {
  bool is_waiting = false;
  std::string who;
  std::string why;
  double waiting_s = 0.0;
};

// The side of a table that the other one waits for.
struct StalledSide {
  std::string side;     // "writers" or "readers"; empty: neither
  std::string last;     // who of them was served last; empty: nobody so far
  double idle_s = 0.0;  // since then, or since the other side began to wait
};

struct TableStatus {
  std::string name;
  int64_t size = 0, max_size = 0;
  double mass = 0.0;
  int64_t inserts = 0, samples = 0;
  double error = 0.0;  // of replay/table/rate_limiter.h
  int64_t updates = 0, late_updates = 0;
  WaitStatus insert_wait, sample_wait;
  // Named once the other side has waited for kStallTime.
  StalledSide stalled;
};
inline constexpr Clock::Duration kStallTime = std::chrono::seconds(2);

struct ShardStatus {
  std::vector<TableStatus> tables;
  int64_t size_bytes = 0, max_bytes = 0;  // of memory
  int64_t disk_bytes = 0, max_disk_bytes = 0;
  int64_t num_groups = 0, num_writers = 0;
  int64_t num_groups_on_disk = 0;
  int64_t inserted_steps = 0;
  int64_t duplicate_groups = 0;  // sent again by a writer
  int64_t dropped_groups = 0;    // that continued no known episode
  int64_t abandoned_steps = 0;   // in no item: their episode never ended
  int64_t abandoned_items = 0;   // still waiting when their writer went
  int64_t evicted_items = 0;     // that went for max_bytes
  int64_t disk_errors = 0;       // groups that the disk tier could not take
  int64_t lost_steps = 0;        // that a service before this one had taken in
};

// All that one replay service holds: tables, steps and what it knows of its
// writers. The network is around it (replay/service/service.h).
//
// A writer is a number that no other writer uses, and numbers its step groups
// 1, 2, 3, ...; a number that was seen is not taken in again, so that a group
// may be sent twice. An episode that begins anew, or does not go on where it
// stopped, ends the one before without its last steps, which are counted.
//
// Thread-safety: all methods may be called from any thread. One lock guards
// everything; step groups are checked and copied outside it.
class Shard {
 public:
  // Throws InvalidArgument for settings that cannot be used. `clock` outlives
  // the shard.
  Shard(ShardConfig config, Clock* clock);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // --- writers ---

  // Takes in a step group (replay/format/step_group.h) without waiting. Throws
  // IoError if it breaks the format; nothing has changed then.
  InsertResult TryInsert(uint64_t writer, uint64_t sequence,
                         std::vector<std::byte> block);
  // Admits what waits of `writer`; kInserted if nothing does any more.
  InsertResult Resume(uint64_t writer);
  // TryInsert and Resume until all is in or `deadline` has come: kWait then.
  InsertResult Insert(uint64_t writer, uint64_t sequence,
                      std::vector<std::byte> block, Clock::TimePoint deadline);
  // Steps that writers have brought so far: those in, those removed since, and
  // those that came in before a crash and were lost.
  int64_t num_steps() const;
  // The sequence of the last group of `writer` that is in, or 0.
  uint64_t LastSequence(uint64_t writer) const;
  // How many steps of `writer` have come in.
  int64_t StepsOf(uint64_t writer) const;
  // The writer had `steps` acknowledged. Returns how many of them never came
  // in here: they are lost, as after a crash without a journal. They are
  // counted, and come in from now on.
  int64_t NoteStepsOf(uint64_t writer, int64_t steps);
  // The writers that were not closed, ascending.
  std::vector<uint64_t> OpenWriters() const;
  // The writer is gone: forgets its open episode and what waits of it. Its last
  // sequence is remembered, in case it comes back.
  void CloseWriter(uint64_t writer);

  // --- readers; `table` is the number of a table in the config (checked) ---

  int64_t num_tables() const { return static_cast<int64_t>(tables_.size()); }
  // The number of a table by name.
  std::optional<int64_t> FindTable(std::string_view name) const;

  // Adds to `batch` as many items as are admitted now, at most `wanted`;
  // returns how many. `who` stands in the status if none is.
  int64_t TrySample(int64_t table, int64_t wanted, std::string_view who,
                    SampledBatch* batch);
  // Fills `batch` with `count` items, as they are admitted. After kTimeout and
  // kClosed it holds those that came before.
  SampleResult Sample(int64_t table, int64_t count, std::string_view who,
                      Clock::TimePoint deadline, SampledBatch* batch);
  // Whoever waited has gone: the status names it no more.
  void ForgetSampleWait(int64_t table);
  // Returns how many of the keys were of items that still live. Throws like
  // Table::UpdatePriorities.
  int64_t UpdatePriorities(int64_t table,
                           std::span<const PriorityUpdate> updates);

  // --- checkpoints (replay/checkpoint/checkpointer.h) ---

  // Everything as it is now. The lock is held while the items are copied.
  ShardSnapshot TakeSnapshot() const;
  // A group of a snapshot, for Restore(); with its bytes on the disk if they
  // are wanted there and there is room. Throws IoError like Group.
  std::shared_ptr<StoredGroup> MakeGroup(std::vector<std::byte> block,
                                         uint64_t serial, uint64_t writer,
                                         uint64_t sequence, bool wants_disk);
  // Takes up a snapshot. Items of tables that this config does not name are
  // left out. Throws InvalidArgument if a table makes other items than the
  // snapshot holds (n_step, discount, stack). Precondition: it is one of
  // DecodeSnapshot(), used once; nothing was inserted yet (checked; aborts).
  void Restore(const ShardSnapshot& snapshot);
  // From now on calls `journal` with every group that is taken in, under the
  // lock and before the call that brings it returns; nothing changes if it
  // throws. Null ends this.
  using Journal = std::function<void(const Group&)>;
  void SetJournal(Journal journal);
  // Takes in a group of the journal, as it once was taken in.
  InsertResult Replay(uint64_t serial, uint64_t writer, uint64_t sequence,
                      std::vector<std::byte> block);

  // Of the group taken in last, or 0.
  uint64_t last_serial() const;

  // Ends all waits with kClosed, and what is called later too.
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
  // Whether `group` continues the writer's episode or begins one.
  bool Prepare(Writer& writer, const StepGroupView& group) REQUIRES(mutex_);
  void ForgetOpenEpisode(Writer& writer) REQUIRES(mutex_);
  void ForgetWaitingItems(Writer& writer) REQUIRES(mutex_);
  bool MakeRoom(int64_t bytes) REQUIRES(mutex_);
  // Whether the group is on the disk now, or gone. May evict groups that are on
  // the disk, those above `last_evicted`, which it raises.
  bool MoveToDisk(StoredGroup& group, uint64_t* last_evicted) REQUIRES(mutex_);
  bool EvictOldestOnDisk(uint64_t* last_evicted) REQUIRES(mutex_);
  void NoteDiskError(const IoError& error) REQUIRES(mutex_);
  void Evict(StoredGroup& group) REQUIRES(mutex_);
  InsertResult InsertLocked(uint64_t id, uint64_t sequence,
                            std::shared_ptr<Group> group) REQUIRES(mutex_);
  // Moves waiting items into the tables; whether none is left.
  bool Admit(uint64_t id, Writer& writer) REQUIRES(mutex_);
  // Whether Admit() would change anything.
  bool CanAdmit(uint64_t id) const REQUIRES(mutex_);
  int64_t SampleLocked(int64_t table, int64_t wanted, std::string_view who,
                       SampledBatch* batch) REQUIRES(mutex_);
  WaitStatus StatusOf(const WaitRecord& record, std::string why) const
      REQUIRES(mutex_);
  StalledSide StalledSideOf(const TableState& state) const REQUIRES(mutex_);
  TableState& TableAt(int64_t table) REQUIRES(mutex_);
  int64_t NumSteps() const REQUIRES(mutex_) {
    return counts_.inserted_steps + counts_.lost_steps;
  }

  const ShardConfig config_;
  Clock* const clock_;

  mutable Mutex mutex_;
  // notified when a wait of Insert() or Sample() may be over
  CondVar changed_;
  bool is_closed_ GUARDED_BY(mutex_) = false;
  Journal journal_ GUARDED_BY(mutex_);
  // before the tables and writers, which release what they use of it
  FrameStore store_ GUARDED_BY(mutex_);
  bool is_disk_failing_ GUARDED_BY(mutex_) = false;
  // the vector itself never changes
  std::vector<TableState> tables_;
  std::map<uint64_t, Writer> writers_ GUARDED_BY(mutex_);
  ShardStatus counts_ GUARDED_BY(mutex_);  // only its counters are used
};

}  // namespace replicant::replay
