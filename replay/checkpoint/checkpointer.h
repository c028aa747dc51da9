#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/file_lock.h"
#include "base/mutex.h"
#include "replay/checkpoint/checkpoint_file.h"
#include "replay/checkpoint/checkpoint_layout.h"
#include "replay/store/segment.h"
#include "replay/table/shard.h"
#include "replay/table/snapshot.h"

namespace replicant::replay {

// CheckpointOptions::on_restored_chunk has ended a restore.
class RestoreStopped : public Error {
 public:
  using Error::Error;
};

struct CheckpointOptions {
  std::filesystem::path folder;
  Durability durability = Durability::kCheckpoint;
  // Segments are closed beyond this size.
  int64_t segment_bytes = int64_t{64} << 20;
  // Number of complete checkpoints without an id to keep, at least 1; also the
  // number of ids to keep, each with its newest checkpoint. Older checkpoints
  // serve if the newest is damaged, or if a run goes back.
  int64_t num_kept = 2;
  // The id of the checkpoint to restore; 0 for the newest of all.
  uint64_t restore_id = 0;
  // Called for every restored chunk: a large replay takes minutes. False ends
  // the restore.
  std::function<bool()> on_restored_chunk = [] { return true; };
};

// Results of the restore in Checkpointer's constructor.
struct RestoreReport {
  // The number of the loaded checkpoint; std::nullopt if none was loaded.
  std::optional<uint64_t> number;
  uint64_t id = 0;  // its id, or 0
  // Chunks of the journal that were inserted after the checkpoint.
  int64_t journal_chunks = 0;
  // Items, and chunks of the journal, that were left out because a number of
  // their steps is not finite (ShardConfig::has_float_rows).
  int64_t left_out_items = 0;
  int64_t left_out_chunks = 0;
  // Why newer checkpoints were skipped, or where the journal stopped: one line
  // each, naming the file.
  std::vector<std::string> problems;
};

// Keeps a shard on disk, in one folder:
//
//   segment-NNNNNNNN.log      chunks, each written once
//                             (replay/store/segment.h)
//   checkpoint-NNNNNNNN.ckpt  a snapshot, with the places of its chunks
//   checkpoint-NNNNNNNN.damaged  a folder with a checkpoint that cannot be
//                             read and its segments; never deleted
//   layout.yaml               the sizes of steps and the durability
//   lock                      held while a Checkpointer lives
//
// A checkpoint writes the chunks added since the last one and a snapshot
// of everything else, forces both to disk, and only then renames its
// file, so a crash at any byte leaves the previous checkpoint. The shard
// keeps serving and stops only while TakeSnapshot() copies. Segments
// that no kept checkpoint needs are deleted. Only checkpoints that this
// object has read whole or written count as kept; unreadable ones are
// set aside. If most of a segment is dead, its live chunks are written
// again, so the folder stays below about twice the shard's size per kept
// checkpoint.
//
// Checkpoints are numbered 1, 2, 3, ... A checkpoint that a client requested
// also has the client's id. Restoring an id goes back to that moment: the later
// journal is ignored, and the state is saved at once under the next number,
// which makes it the newest.
//
// A checkpoint file is: magic "RCK1" u32, version 3 u32, number u64, id u64,
// first segment of the journal after it u64, bytes of the snapshot u64, number
// of segments u32, CRC-32C of all bytes up to the snapshot except itself u32,
// CRC-32C of the snapshot u32, zero u32, the segments of its chunks, u64 each,
// the snapshot (replay/table/snapshot.h). Version 2, which is still read, has
// no windows.
//
// Thread-safety: all methods may be called from any thread; concurrent Save()
// calls run one after the other.
class Checkpointer {
 public:
  // Makes the folder if it is missing and restores `shard`, which must be new,
  // from the newest whole checkpoint (of restore_id, if given). Newer damaged
  // ones are set aside. With kJournal the shard writes its journal from now on.
  // `shard` outlives this object.
  //
  // Throws, without changing a file: IoError if the folder cannot be used, is
  // in use by another process, or none of its checkpoints (of restore_id, if
  // given) can be restored; InvalidArgument if its steps differ in shape from
  // the shard's; RestoreStopped; and as Shard::Restore(). The shard may hold a
  // part of the steps after RestoreStopped.
  Checkpointer(const CheckpointOptions& options, Shard* shard);
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Results of the restore in the constructor.
  const RestoreReport& restored() const { return restored_; }

  // Writes a checkpoint of the shard's present state and returns its number.
  // Throws IoError on failure; earlier checkpoints remain.
  uint64_t Save();
  // Writes a checkpoint of an earlier snapshot. `id` is the client's, or 0;
  // among checkpoints with the same id, the newest counts.
  uint64_t Save(const ShardSnapshot& snapshot, uint64_t id);

  // The number of the last checkpoint saved or found; 0 if none.
  uint64_t last_number() const;

 private:
  struct SegmentInfo {
    int64_t size_bytes = 0;
    uint64_t max_serial = 0;  // of its records
  };
  // In replay/checkpoint/checkpoint_restore.cc.
  // Throws RestoreStopped if the restore is to end.
  void CountRestoredChunk() const;
  // Restores the shard; returns whether the folder's layout is out of date.
  // Called by the constructor alone, and so without the mutex: the shard's
  // mutex is taken in here, and comes first once there is a journal.
  bool Restore() NO_THREAD_SAFETY_ANALYSIS;
  void FindFiles() REQUIRES(mutex_);
  void RestoreNewest() REQUIRES(mutex_);
  void RestoreFrom(uint64_t number) REQUIRES(mutex_);
  std::vector<std::shared_ptr<StoredChunk>> ReadChunks(
      const EncodedSnapshot& encoded) REQUIRES(mutex_);
  void ReplayJournal(uint64_t first_segment) REQUIRES(mutex_);
  // Moves a checkpoint, with links to its segments, to a separate folder.
  // Throws IoError.
  void SetAside(uint64_t number) REQUIRES(mutex_);
  // Reads the kept checkpoints that were not read yet, and sets damaged ones
  // aside. Throws IoError if that fails.
  void VerifyKept() EXCLUDES(mutex_);

  // Appends a record to the open segment, and opens one if there is none.
  ChunkLocation AppendRecord(const SegmentRecord& record) REQUIRES(mutex_);
  void AppendLocked(const Chunk& chunk) REQUIRES(mutex_);
  void AppendLimiters(const LimiterStates& states) EXCLUDES(mutex_);
  // Whether the segment still accepts chunks.
  bool IsOpen(uint64_t segment) const REQUIRES(mutex_);
  void AppendNewChunks(const ShardSnapshot& snapshot) EXCLUDES(mutex_);
  void AppendLiveOfSparseSegments(const ShardSnapshot& snapshot)
      EXCLUDES(mutex_);
  void SyncSegments() EXCLUDES(mutex_);
  uint64_t WriteCheckpoint(const ShardSnapshot& snapshot, uint64_t id)
      EXCLUDES(mutex_);
  // Removes the checkpoints beyond num_kept from kept_.
  void ForgetOldHeads() REQUIRES(mutex_);
  void ForgetOld(const ShardSnapshot& snapshot) EXCLUDES(mutex_);

  const CheckpointOptions options_;
  Shard* const shard_;
  std::optional<FileLock> lock_;
  RestoreReport restored_;

  // Held for a whole Save(), so that saves run one after the other.
  Mutex save_mutex_;
  // Held only briefly, since an insert may wait for it. Lock order: the shard's
  // lock first, then this one.
  mutable Mutex mutex_;
  // The last one takes new chunks; the others are not forced to disk yet.
  std::vector<std::shared_ptr<SegmentWriter>> writers_ GUARDED_BY(mutex_);
  uint64_t next_segment_ GUARDED_BY(mutex_) = 1;
  // The limiters' states last written to the journal, encoded.
  std::vector<std::byte> limiters_ GUARDED_BY(mutex_);
  // The chunks' places, by serial.
  std::unordered_map<uint64_t, ChunkLocation> locations_ GUARDED_BY(mutex_);
  std::map<uint64_t, SegmentInfo> segments_ GUARDED_BY(mutex_);
  // The heads of the checkpoints that are kept, by number.
  std::map<uint64_t, CheckpointHead> kept_ GUARDED_BY(mutex_);
  // Checkpoints that this object has read whole or written.
  std::set<uint64_t> verified_ GUARDED_BY(mutex_);
  // Checkpoints that cannot be read, with their heads if these can be read.
  std::map<uint64_t, std::optional<CheckpointHead>> damaged_ GUARDED_BY(mutex_);
  uint64_t last_number_ GUARDED_BY(mutex_) = 0;
};

// Reads all of checkpoint `id` in `folder` and returns in one line why it
// cannot be restored, or "" if it can. Changes nothing. Throws IoError if the
// folder cannot be read.
std::string FindDamage(const std::filesystem::path& folder, uint64_t id);

}  // namespace replicant::replay
