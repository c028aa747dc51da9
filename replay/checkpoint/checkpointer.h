#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/mutex.h"
#include "replay/checkpoint/checkpoint_file.h"
#include "replay/store/segment.h"
#include "replay/table/shard.h"
#include "replay/table/snapshot.h"

namespace replicant::replay {

// What an acknowledged insert survives.
enum class Durability {
  // The shard's memory: after a crash the steps since the last checkpoint are
  // gone.
  kCheckpoint,
  // The end of this process at any moment: every group is written to the
  // journal before its insert returns. The disk is forced at checkpoints only,
  // so that of a machine that loses power the same holds as above.
  kJournal
};

struct CheckpointOptions {
  std::filesystem::path folder;
  Durability durability = Durability::kCheckpoint;
  // Segments are closed beyond this size.
  int64_t segment_bytes = int64_t{64} << 20;
  // Complete checkpoints to keep, at least 1, of those without an id, and as
  // many ids, the newest of each: the older ones are for the case that the
  // newest turns out damaged, or that somebody goes back.
  int64_t num_kept = 2;
  // The id of the checkpoint to restore; 0: the newest, whatever it is called.
  uint64_t restore_id = 0;
};

// What was found in the folder.
struct RestoreReport {
  // The number of the checkpoint that was loaded; none if there is none that
  // can be.
  std::optional<uint64_t> number;
  uint64_t id = 0;  // its id, or 0
  // Groups of the journal taken in after it.
  int64_t journal_groups = 0;
  // Why newer checkpoints were passed over, or the journal stopped; one line
  // each, with the file.
  std::vector<std::string> problems;
};

// Keeps a shard on disk, in one folder:
//
//   segment-NNNNNNNN.log     step groups, each written once
//   (replay/store/segment.h) checkpoint-NNNNNNNN.ckpt a snapshot that says
//   where its groups lie
//
// A checkpoint writes the groups that came since the last one and a snapshot of
// everything else, forces both to the disk, and only then takes its name; so
// that a crash at any byte leaves the one before. The shard serves meanwhile:
// it stops only while TakeSnapshot() copies. Segments that no kept checkpoint
// needs are deleted; one that is mostly dead has its living groups written
// again, so that the folder stays below about twice the shard's size for each
// kept checkpoint.
//
// Checkpoints are numbered 1, 2, 3, ... One that a client asked for has an id,
// which it chose, beside its number. Whoever restores an id goes back to that
// moment: the journal after it is left out, and the state is saved again at
// once under the next number, so that it is the newest from then on.
//
// A checkpoint file is: magic "RCK1" u32, version 2 u32, number u64, id u64,
// first segment of the journal after it u64, bytes of the snapshot u64, number
// of segments u32, CRC-32C of all up to the snapshot but itself u32, CRC-32C of
// the snapshot u32, zero u32, the segments that its groups lie in, u64 each,
// the snapshot (replay/table/snapshot.h).
//
// Thread-safety: all methods may be called from any thread; Save() calls of
// several threads go one after the other.
class Checkpointer {
 public:
  // Takes over the folder, which is made if it is not there, restores `shard`,
  // which must be new, from its newest checkpoint that is whole, or the newest
  // of restore_id, and with kJournal has the shard write its journal from now
  // on. Throws IoError if the folder cannot be used, or has no whole checkpoint
  // of restore_id; InvalidArgument like Shard::Restore. `shard` outlives this
  // object.
  Checkpointer(const CheckpointOptions& options, Shard* shard);
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // What the constructor did.
  const RestoreReport& restored() const { return restored_; }

  // Writes a checkpoint of the shard as it is now; returns its number. Throws
  // IoError, leaving the checkpoints before it, if it cannot be written.
  uint64_t Save();
  // The same for a snapshot that was taken before, as when the moment of the
  // snapshot matters and writing it can wait; `id` is 0 or the client's. The
  // newest of one id counts.
  uint64_t Save(const ShardSnapshot& snapshot, uint64_t id);

  // The number of the last checkpoint saved or found, or 0.
  uint64_t last_number() const;

 private:
  struct SegmentInfo {
    int64_t size_bytes = 0;
    uint64_t max_serial = 0;  // of its records
  };
  // In replay/checkpoint/checkpoint_restore.cc.
  void FindFiles() REQUIRES(mutex_);
  void RestoreNewest() REQUIRES(mutex_);
  void RestoreFrom(uint64_t number) REQUIRES(mutex_);
  std::vector<std::shared_ptr<StoredGroup>> ReadGroups(
      const EncodedSnapshot& encoded) REQUIRES(mutex_);
  void ReplayJournal(uint64_t first_segment) REQUIRES(mutex_);

  void AppendLocked(const Group& group) REQUIRES(mutex_);
  // Whether groups are appended to this segment.
  bool IsOpen(uint64_t segment) const REQUIRES(mutex_);
  void AppendNewGroups(const ShardSnapshot& snapshot) EXCLUDES(mutex_);
  void AppendLiveOfSparseSegments(const ShardSnapshot& snapshot)
      EXCLUDES(mutex_);
  void SyncSegments() EXCLUDES(mutex_);
  uint64_t WriteCheckpoint(const ShardSnapshot& snapshot, uint64_t id)
      EXCLUDES(mutex_);
  // Takes the checkpoints beyond num_kept off the list.
  void ForgetOldHeads() REQUIRES(mutex_);
  void ForgetOld(const ShardSnapshot& snapshot) EXCLUDES(mutex_);

  const CheckpointOptions options_;
  Shard* const shard_;
  RestoreReport restored_;

  // Held for a whole Save(), so that they follow each other.
  Mutex save_mutex_;
  // Held for moments only, since an insert may wait for it; the shard's lock
  // may be held when it is taken, never the other way round.
  mutable Mutex mutex_;
  // The last is appended to; the others wait to be forced to the disk.
  std::vector<std::shared_ptr<SegmentWriter>> writers_ GUARDED_BY(mutex_);
  uint64_t next_segment_ GUARDED_BY(mutex_) = 1;
  // Where groups lie, by serial.
  std::unordered_map<uint64_t, GroupLocation> locations_ GUARDED_BY(mutex_);
  std::map<uint64_t, SegmentInfo> segments_ GUARDED_BY(mutex_);
  // Of the checkpoints kept, by number.
  std::map<uint64_t, CheckpointHead> kept_ GUARDED_BY(mutex_);
  uint64_t last_number_ GUARDED_BY(mutex_) = 0;
};

// Why a run cannot go back to checkpoint `id` in `folder`, in one line; empty
// if all of it can be read, which takes as long as reading its bytes. Changes
// nothing. Throws IoError if the folder cannot be read.
std::string FindDamage(const std::filesystem::path& folder, uint64_t id);

}  // namespace replicant::replay
