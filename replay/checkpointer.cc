#include "replay/checkpointer.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/base/error.h"
#include "core/base/fs.h"
#include "replay/checkpoint_file.h"

namespace replicant::replay {
namespace {

// Below this share of living bytes a segment is written again.
constexpr double kSparse = 0.5;

// A file that cannot be deleted costs room, no more.
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
  {
    MutexLock lock(mutex_);
    RestoreNewest();
  }
  if (options.durability == Durability::kJournal) {
    shard->SetJournal([this](const Group& group) {
      MutexLock lock(mutex_);
      AppendLocked(group);
    });
  }
}

Checkpointer::~Checkpointer() { shard_->SetJournal(nullptr); }

uint64_t Checkpointer::last_id() const {
  MutexLock lock(mutex_);
  return last_id_;
}

void Checkpointer::Save(uint64_t id) { Save(id, shard_->TakeSnapshot()); }

void Checkpointer::Save(uint64_t id, const ShardSnapshot& snapshot) {
  MutexLock save_lock(save_mutex_);
  if (id <= last_id()) {
    throw InvalidArgument(
        fmt::format("checkpoint {} of {} does not follow checkpoint {}", id,
                    options_.folder.string(), last_id()));
  }
  AppendNewGroups(snapshot);
  AppendLiveOfSparseSegments(snapshot);
  SyncSegments();
  WriteCheckpoint(id, snapshot);
  ForgetOld(snapshot);
}

void Checkpointer::AppendLocked(const Group& group) {
  if (writers_.empty() ||
      writers_.back()->size_bytes() >= options_.segment_bytes) {
    writers_.push_back(std::make_shared<SegmentWriter>(
        SegmentPath(options_.folder, next_segment_), next_segment_));
    ++next_segment_;
  }
  SegmentWriter& writer = *writers_.back();
  const int64_t offset =
      writer.Append({group.serial, group.writer, group.sequence, group.block});
  locations_[group.serial] = {writer.number(), offset};
  SegmentInfo& info = segments_[writer.number()];
  info.size_bytes = writer.size_bytes();
  info.max_serial = std::max(info.max_serial, group.serial);
}

bool Checkpointer::IsOpen(uint64_t segment) const {
  return !writers_.empty() && writers_.back()->number() == segment;
}

void Checkpointer::AppendNewGroups(const ShardSnapshot& snapshot) {
  for (const ShardSnapshot::SavedGroup& saved : snapshot.groups) {
    MutexLock lock(mutex_);
    if (!locations_.contains(saved.group->serial)) AppendLocked(*saved.group);
  }
}

void Checkpointer::AppendLiveOfSparseSegments(const ShardSnapshot& snapshot) {
  std::map<uint64_t, std::vector<const Group*>> groups;  // by segment
  std::set<uint64_t> sparse;
  {
    MutexLock lock(mutex_);
    std::map<uint64_t, int64_t> live_bytes;
    for (const ShardSnapshot::SavedGroup& saved : snapshot.groups) {
      const uint64_t segment = locations_.at(saved.group->serial).segment;
      groups[segment].push_back(saved.group.get());
      live_bytes[segment] += static_cast<int64_t>(saved.group->block.size());
    }
    for (const auto& [number, bytes] : live_bytes) {
      const auto size = static_cast<double>(segments_[number].size_bytes);
      if (!IsOpen(number) && static_cast<double>(bytes) < kSparse * size) {
        sparse.insert(number);
      }
    }
  }
  for (const uint64_t number : sparse) {
    for (const Group* group : groups[number]) {
      MutexLock lock(mutex_);
      AppendLocked(*group);
    }
  }
}

void Checkpointer::SyncSegments() {
  std::vector<std::shared_ptr<SegmentWriter>> writers;
  {
    MutexLock lock(mutex_);
    writers = writers_;
    // only the last is written on
    if (writers_.size() > 1)
      writers_.erase(writers_.begin(), writers_.end() - 1);
  }
  try {
    for (const auto& writer : writers) writer->Sync();
  } catch (const IoError&) {
    // to be tried again, before those that came meanwhile
    MutexLock lock(mutex_);
    if (!writers.empty()) {
      writers_.insert(writers_.begin(), writers.begin(), writers.end() - 1);
    }
    throw;
  }
}

void Checkpointer::WriteCheckpoint(uint64_t id, const ShardSnapshot& snapshot) {
  Kept kept;
  const auto location = [&](uint64_t serial) {
    MutexLock lock(mutex_);
    const GroupLocation place = locations_.at(serial);
    kept.segments.insert(place.segment);
    return place;
  };
  const std::vector<std::byte> bytes = EncodeSnapshot(snapshot, location);
  {
    MutexLock lock(mutex_);
    // the first segment that may hold a group of after the snapshot
    kept.journal_segment = next_segment_;
    for (const auto& [number, info] : segments_) {
      if (info.max_serial > snapshot.last_serial || IsOpen(number)) {
        kept.journal_segment = std::min(kept.journal_segment, number);
      }
    }
  }
  WriteCheckpointFile(options_.folder, id, kept.journal_segment, bytes);
  MutexLock lock(mutex_);
  kept_[id] = std::move(kept);
  last_id_ = id;
}

void Checkpointer::ForgetOld(const ShardSnapshot& snapshot) {
  std::set<uint64_t> live;
  for (const auto& saved : snapshot.groups) live.insert(saved.group->serial);
  std::set<uint64_t> needed;
  uint64_t oldest_id = 0;
  {
    MutexLock lock(mutex_);
    std::erase_if(locations_, [&](const auto& entry) {
      return entry.first <= snapshot.last_serial && !live.contains(entry.first);
    });
    while (static_cast<int64_t>(kept_.size()) > options_.num_kept) {
      kept_.erase(kept_.begin());
    }
    oldest_id = kept_.begin()->first;
    uint64_t journal_segment = next_segment_;
    for (const auto& [id, kept] : kept_) {
      needed.insert(kept.segments.begin(), kept.segments.end());
      journal_segment = std::min(journal_segment, kept.journal_segment);
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
  // segments that begin from here on are younger than this list
  const auto segments = ListNumbered(options_.folder, "segment", "log");
  const auto checkpoints = ListNumbered(options_.folder, "checkpoint", "ckpt");
  const uint64_t newest = needed.empty() ? 0 : *needed.rbegin();
  for (const uint64_t id : checkpoints) {
    if (id < oldest_id) Delete(CheckpointPath(options_.folder, id));
  }
  for (const uint64_t number : segments) {
    if (number < newest && !needed.contains(number)) {
      Delete(SegmentPath(options_.folder, number));
    }
  }
}

}  // namespace replicant::replay
