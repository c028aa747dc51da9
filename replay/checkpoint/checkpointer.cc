// Save() writes in an order that a crash may cut anywhere:
//
//   1. append the chunks of the snapshot that no segment holds yet;
//   2. append the live chunks of sparse segments again, to free these;
//   3. force the segments to the disk;
//   4. write the checkpoint's file, which names the segments that it needs;
//   5. verify the kept checkpoints that an earlier process wrote;
//   6. delete old checkpoints, then the segments that no kept one needs.
//
// With a journal, inserts append to the open segment at any moment, also
// between these steps. So a checkpoint notes the first segment that may hold a
// chunk younger than its snapshot: the journal begins there.
#include "replay/checkpoint/checkpointer.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/fs.h"
#include "replay/store/numbered_files.h"

namespace replicant::replay {
namespace {

// Below this share of live bytes the live chunks of a segment are written
// again.
constexpr double kSparse = 0.5;

// Deletes a file. A failure is only logged: the file costs disk space, no more.
void Delete(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error)
    spdlog::warn("cannot delete {}: {}", path.string(), error.message());
}

}  // namespace

Checkpointer::Checkpointer(const CheckpointOptions& options, Shard* shard)
    : options_(options), shard_(shard) {
  if (options.num_kept < 1 || options.segment_bytes < 1) {
    throw InvalidArgument(fmt::format(
        "checkpointer: num_kept {} and segment_bytes {} must be >= 1",
        options.num_kept, options.segment_bytes));
  }
  MakeFolders(options.folder);
  lock_.emplace(options.folder / "lock", options.folder.string());
  RemoveStaleTemporaries(options.folder);
  const bool is_new_layout = Restore();
  // make the restored state the newest checkpoint; if there is no journal from
  // here on, it also preserves the chunks of the old journal
  if (options.restore_id != 0 ||
      (is_new_layout && options.durability == Durability::kCheckpoint &&
       restored_.journal_chunks > 0)) {
    Save(shard->TakeSnapshot(), options.restore_id);
  }
  if (is_new_layout) {
    WriteLayout(options.folder, {.shape = shard->config().shape,
                                 .durability = options.durability});
  }
  if (options.durability == Durability::kJournal) {
    shard->SetJournal(
        {.append_chunk =
             [this](const Chunk& chunk) {
               MutexLock lock(mutex_);
               AppendLocked(chunk);
             },
         .append_limiters =
             [this](const LimiterStates& states) { AppendLimiters(states); }});
  }
}

Checkpointer::~Checkpointer() { shard_->SetJournal({}); }

uint64_t Checkpointer::last_number() const {
  MutexLock lock(mutex_);
  return last_number_;
}

uint64_t Checkpointer::Save() { return Save(shard_->TakeSnapshot(), 0); }

uint64_t Checkpointer::Save(const ShardSnapshot& snapshot, uint64_t id) {
  MutexLock save_lock(save_mutex_);
  AppendNewChunks(snapshot);
  AppendLiveOfSparseSegments(snapshot);
  SyncSegments();
  const uint64_t number = WriteCheckpoint(snapshot, id);
  VerifyKept();
  ForgetOld(snapshot);
  return number;
}

ChunkLocation Checkpointer::AppendRecord(const SegmentRecord& record) {
  if (writers_.empty() ||
      writers_.back()->size_bytes() >= options_.segment_bytes) {
    writers_.push_back(std::make_shared<SegmentWriter>(
        SegmentPath(options_.folder, next_segment_), next_segment_));
    ++next_segment_;
    // a journal may begin with this segment
    if (!limiters_.empty()) writers_.back()->Append({.block = limiters_});
  }
  SegmentWriter& writer = *writers_.back();
  const int64_t offset = writer.Append(record);
  SegmentInfo& info = segments_[writer.number()];
  info.size_bytes = writer.size_bytes();
  info.max_serial = std::max(info.max_serial, record.serial);
  return {writer.number(), offset};
}

void Checkpointer::AppendLocked(const Chunk& chunk) {
  locations_[chunk.serial] =
      AppendRecord({chunk.serial, chunk.writer, chunk.sequence, chunk.block});
}

void Checkpointer::AppendLimiters(const LimiterStates& states) {
  MutexLock lock(mutex_);
  limiters_ = EncodeLimiters(states);
  AppendRecord({.block = limiters_});
}

bool Checkpointer::IsOpen(uint64_t segment) const {
  return !writers_.empty() && writers_.back()->number() == segment;
}

void Checkpointer::AppendNewChunks(const ShardSnapshot& snapshot) {
  for (const ShardSnapshot::SavedChunk& saved : snapshot.chunks) {
    MutexLock lock(mutex_);
    if (!locations_.contains(saved.chunk->serial)) AppendLocked(*saved.data);
  }
}

void Checkpointer::AppendLiveOfSparseSegments(const ShardSnapshot& snapshot) {
  std::map<uint64_t, std::vector<const Chunk*>> chunks;  // by segment
  std::set<uint64_t> sparse;
  {
    MutexLock lock(mutex_);
    std::map<uint64_t, int64_t> live_bytes;
    for (const ShardSnapshot::SavedChunk& saved : snapshot.chunks) {
      const uint64_t segment = locations_.at(saved.chunk->serial).segment;
      chunks[segment].push_back(saved.data.get());
      live_bytes[segment] += static_cast<int64_t>(saved.data->block.size());
    }
    for (const auto& [number, bytes] : live_bytes) {
      const auto size = static_cast<double>(segments_[number].size_bytes);
      if (!IsOpen(number) && static_cast<double>(bytes) < kSparse * size) {
        sparse.insert(number);
      }
    }
  }
  for (const uint64_t number : sparse) {
    for (const Chunk* chunk : chunks[number]) {
      MutexLock lock(mutex_);
      AppendLocked(*chunk);
    }
  }
}

void Checkpointer::SyncSegments() {
  std::vector<std::shared_ptr<SegmentWriter>> writers;
  {
    MutexLock lock(mutex_);
    writers = writers_;
    // only the last one takes more chunks
    if (writers_.size() > 1)
      writers_.erase(writers_.begin(), writers_.end() - 1);
  }
  try {
    for (const auto& writer : writers) writer->Sync();
  } catch (const IoError&) {
    // try again at the next Save(), before segments opened meanwhile
    MutexLock lock(mutex_);
    if (!writers.empty()) {
      writers_.insert(writers_.begin(), writers.begin(), writers.end() - 1);
    }
    throw;
  }
}

uint64_t Checkpointer::WriteCheckpoint(const ShardSnapshot& snapshot,
                                       uint64_t id) {
  CheckpointHead head;
  head.id = id;
  const auto location = [&](uint64_t serial) {
    MutexLock lock(mutex_);
    const ChunkLocation place = locations_.at(serial);
    head.segments.insert(place.segment);
    return place;
  };
  const std::vector<std::byte> bytes = EncodeSnapshot(snapshot, location);
  {
    MutexLock lock(mutex_);
    head.number = last_number_ + 1;
    // the first segment that may hold a chunk younger than the snapshot
    head.journal_segment = next_segment_;
    for (const auto& [number, info] : segments_) {
      if (info.max_serial > snapshot.last_serial || IsOpen(number)) {
        head.journal_segment = std::min(head.journal_segment, number);
      }
    }
  }
  WriteCheckpointFile(options_.folder, head, bytes);
  MutexLock lock(mutex_);
  last_number_ = head.number;
  verified_.insert(head.number);
  kept_[head.number] = std::move(head);
  return last_number_;
}

void Checkpointer::ForgetOldHeads() {
  int64_t num_without = 0;
  std::set<uint64_t> ids;
  for (auto it = kept_.end(); it != kept_.begin();) {
    --it;
    const uint64_t id = it->second.id;
    const bool is_kept =
        id == 0 ? ++num_without <= options_.num_kept
                : static_cast<int64_t>(ids.size()) < options_.num_kept &&
                      ids.insert(id).second;
    if (!is_kept) it = kept_.erase(it);
  }
}

void Checkpointer::ForgetOld(const ShardSnapshot& snapshot) {
  std::set<uint64_t> live;
  for (const auto& saved : snapshot.chunks) live.insert(saved.chunk->serial);
  std::set<uint64_t> kept, needed;
  {
    MutexLock lock(mutex_);
    std::erase_if(locations_, [&](const auto& entry) {
      return entry.first <= snapshot.last_serial && !live.contains(entry.first);
    });
    ForgetOldHeads();
    uint64_t journal_segment = next_segment_;
    for (const auto& [number, head] : kept_) {
      kept.insert(number);
      needed.insert(head.segments.begin(), head.segments.end());
      journal_segment = std::min(journal_segment, head.journal_segment);
    }
    for (const auto& writer : writers_) needed.insert(writer->number());
    for (const auto& [number, info] : segments_) {
      const bool is_journal = options_.durability == Durability::kJournal &&
                              number >= journal_segment;
      if (is_journal) needed.insert(number);
    }
    std::erase_if(segments_, [&](const auto& entry) {
      return !needed.contains(entry.first);
    });
  }
  // `needed` may lack segments opened later: delete none newer than its newest
  const auto segments = ListNumbered(options_.folder, "segment", "log");
  const uint64_t newest = needed.empty() ? 0 : *needed.rbegin();
  for (const uint64_t number :
       ListNumbered(options_.folder, "checkpoint", "ckpt")) {
    if (!kept.contains(number)) Delete(CheckpointPath(options_.folder, number));
  }
  for (const uint64_t number : segments) {
    if (number < newest && !needed.contains(number)) {
      Delete(SegmentPath(options_.folder, number));
    }
  }
}

}  // namespace replicant::replay
