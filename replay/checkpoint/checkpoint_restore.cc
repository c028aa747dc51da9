// The reading half of Checkpointer; the rest is in
// replay/checkpoint/checkpointer.cc.
//
// Checkpoints are tried from the newest to the oldest until one can be read
// whole, chunks included; only then is the shard changed, and only then are
// damaged ones set aside. If there are checkpoints and none can be read, the
// files stay as they are for a person to look at. After a restore the journal
// is replayed: the chunks of its segments in order. Their serials show which
// chunks the snapshot holds or the journal repeats; these are skipped. The
// limiters' states between the chunks let in the items that samples had
// admitted.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <system_error>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/fs.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/store/numbered_files.h"

namespace replicant::replay {
namespace {

// Calls visit(index of the place, record) for all chunks of a snapshot: one
// pass over each segment, in the order of its bytes. Throws IoError.
template <typename Visit>
void ReadPlaces(const std::filesystem::path& folder,
                const EncodedSnapshot& encoded, const Visit& visit) {
  std::map<uint64_t, std::vector<std::pair<int64_t, size_t>>> by_segment;
  for (size_t i = 0; i < encoded.places.size(); ++i) {
    const ChunkLocation& location = encoded.places[i].location;
    by_segment[location.segment].push_back({location.offset, i});
  }
  for (auto& entry : by_segment) {
    // a name, not a binding: clang 14 lets no lambda capture those
    auto& places = entry.second;
    std::sort(places.begin(), places.end());
    std::vector<int64_t> offsets;
    offsets.reserve(places.size());
    for (const auto& [offset, index] : places) offsets.push_back(offset);
    size_t next = 0;
    const std::filesystem::path path = SegmentPath(folder, entry.first);
    ReadRecords(
        path, entry.first, offsets,
        [&](int64_t offset, const SegmentRecord& record) {
          const size_t index = places[next++].second;
          if (record.serial != encoded.places[index].serial) {
            throw IoError(fmt::format(
                "{}: chunk {} at byte {}, expected chunk {}", path.string(),
                record.serial, offset, encoded.places[index].serial));
          }
          visit(index, record);
        });
  }
}

// Reads the chunks of a snapshot only to check them. Throws IoError.
void CheckPlaces(const std::filesystem::path& folder,
                 const EncodedSnapshot& encoded) {
  ReadPlaces(folder, encoded,
             [](size_t /*index*/, const SegmentRecord& /*record*/) {});
}

// "checkpoint-00000012.damaged" in `folder`.
std::filesystem::path DamagedPath(const std::filesystem::path& folder,
                                  uint64_t number) {
  return folder / fmt::format("checkpoint-{:08}.damaged", number);
}

// The chunks of a snapshot with a row that is not finite.
class BadChunks {
 public:
  explicit BadChunks(const ShardSnapshot& snapshot) {
    for (const ShardSnapshot::SavedChunk& saved : snapshot.chunks) {
      next_[saved.chunk->serial] = saved.next_serial;
      if (!saved.chunk->view().HasFiniteRows())
        bad_.insert(saved.chunk->serial);
    }
  }
  bool empty() const { return bad_.empty(); }
  bool Has(const StoredChunk& chunk) const {
    return bad_.contains(chunk.serial);
  }
  // Whether one of the `num_chunks` from `first` on is bad.
  bool Touch(const StoredChunk& first, int64_t num_chunks) const {
    uint64_t serial = first.serial;
    for (int64_t i = 0; i < num_chunks; ++i) {
      if (bad_.contains(serial)) return true;
      const auto next = next_.find(serial);
      if (next == next_.end()) return false;
      serial = next->second;
    }
    return false;
  }

 private:
  std::unordered_map<uint64_t, uint64_t> next_;
  std::unordered_set<uint64_t> bad_;
};

// Takes the items of bad chunks, and the open episodes with one, out of a
// snapshot. Returns the number of items.
int64_t LeaveOutBad(ShardSnapshot* snapshot) {
  const BadChunks bad(*snapshot);
  if (bad.empty()) return 0;
  int64_t num_items = 0;
  for (ShardSnapshot::SavedTable& table : snapshot->tables) {
    TableContents& contents = table.contents;
    for (size_t slot = 0; slot < contents.items.size(); ++slot) {
      TableItem& item = contents.items[slot];
      if (item.first == nullptr || !bad.Touch(*item.first, item.num_chunks)) {
        continue;
      }
      item.first = nullptr;
      contents.free_slots.push_back(static_cast<uint32_t>(slot));
      ++num_items;
    }
  }
  for (ShardSnapshot::SavedWriter& writer : snapshot->writers) {
    for (ShardSnapshot::SavedAssembler& assembler : writer.assemblers) {
      num_items += static_cast<int64_t>(
          std::erase_if(assembler.waiting, [&](const NStepItem& item) {
            return bad.Touch(*item.first, item.num_chunks);
          }));
      const bool is_bad = std::ranges::any_of(
          assembler.chunks,
          [&](const StoredChunk* chunk) { return bad.Has(*chunk); });
      if (is_bad) writer.is_open = false;
    }
    if (writer.is_open) continue;
    for (auto& assembler : writer.assemblers) assembler.chunks.clear();
  }
  return num_items;
}

}  // namespace

bool Checkpointer::Restore() {
  const std::optional<CheckpointLayout> layout = ReadLayout(options_.folder);
  if (layout) CheckSameShape(options_.folder, *layout, shard_->config().shape);
  FindFiles();
  RestoreNewest();
  const bool has_journal =
      options_.durability == Durability::kJournal ||
      (layout && layout->durability == Durability::kJournal);
  if (options_.restore_id == 0 && has_journal) {
    ReplayJournal(restored_.number ? kept_.at(*restored_.number).journal_segment
                                   : 0);
  }
  while (!damaged_.empty()) SetAside(damaged_.begin()->first);
  if (restored_.left_out_items + restored_.left_out_chunks > 0) {
    restored_.problems.push_back(fmt::format(
        "{} items and {} chunks of the journal are left out: numbers of their "
        "steps are not finite",
        restored_.left_out_items, restored_.left_out_chunks));
  }
  return !layout || layout->durability != options_.durability;
}

// Lists the segments and checkpoints of the folder, without checkpoints whose
// head is damaged.
void Checkpointer::FindFiles() {
  for (const uint64_t number :
       ListNumbered(options_.folder, "segment", "log")) {
    // a number is never used twice, even if its file is damaged
    next_segment_ = number + 1;
    segments_[number].size_bytes = static_cast<int64_t>(
        std::filesystem::file_size(SegmentPath(options_.folder, number)));
  }
  const auto numbers = ListNumbered(options_.folder, "checkpoint", "ckpt");
  for (auto number = numbers.rbegin(); number != numbers.rend(); ++number) {
    last_number_ = std::max(last_number_, *number);
    try {
      kept_[*number] = ReadCheckpointHead(options_.folder, *number);
    } catch (const IoError& e) {
      damaged_[*number] = std::nullopt;
      restored_.problems.emplace_back(e.what());
    }
  }
  // the same holds for the number of a checkpoint that was set aside
  const auto damaged = ListNumbered(options_.folder, "checkpoint", "damaged");
  if (!damaged.empty()) {
    last_number_ = std::max(last_number_, *damaged.rbegin());
  }
}

void Checkpointer::RestoreNewest() {
  std::set<uint64_t> ids;
  std::vector<uint64_t> damaged;
  for (auto it = kept_.rbegin(); it != kept_.rend(); ++it) {
    const auto& [number, head] = *it;
    if (head.id != 0) ids.insert(head.id);
    if (options_.restore_id != 0 && head.id != options_.restore_id) continue;
    try {
      RestoreFrom(number);
      restored_.number = number;
      restored_.id = head.id;
      verified_.insert(number);
      break;
    } catch (const IoError& e) {
      damaged.push_back(number);
      restored_.problems.emplace_back(e.what());
    }
  }
  for (const uint64_t number : damaged) {
    damaged_[number] = std::move(kept_.extract(number).mapped());
  }
  if (restored_.number.has_value()) return;
  if (options_.restore_id != 0) {
    throw IoError(
        fmt::format("{}: no whole checkpoint of id {}; {}",
                    options_.folder.string(), options_.restore_id,
                    restored_.problems.empty()
                        ? fmt::format("there are ids: {}", fmt::join(ids, ", "))
                        : restored_.problems.front()));
  }
  if (!damaged_.empty()) {
    throw IoError(fmt::format(
        "{}: none of its {} checkpoints can be restored: {}; the files are "
        "left as they are; hint: repair them, or start afresh with another "
        "checkpoint_folder",
        options_.folder.string(), damaged_.size(),
        fmt::join(restored_.problems, "; ")));
  }
}

void Checkpointer::SetAside(uint64_t number) {
  // links need no room. The checkpoint's file is moved last, so that a crash
  // before leaves a checkpoint that is set aside again
  const std::filesystem::path folder = DamagedPath(options_.folder, number);
  MakeFolders(folder);
  const std::optional<CheckpointHead>& head = damaged_.at(number);
  std::error_code error;
  for (const auto& [segment, info] : segments_) {
    // if the head is unreadable, any segment may belong to the checkpoint
    if (head && !head->segments.contains(segment)) continue;
    std::filesystem::create_hard_link(SegmentPath(options_.folder, segment),
                                      SegmentPath(folder, segment), error);
    if (error && error != std::errc::file_exists &&
        error != std::errc::no_such_file_or_directory) {
      throw IoError::FromErrno("link to", SegmentPath(folder, segment),
                               error.value());
    }
  }
  std::filesystem::rename(CheckpointPath(options_.folder, number),
                          CheckpointPath(folder, number), error);
  if (error) {
    throw IoError::FromErrno("move to", CheckpointPath(folder, number),
                             error.value());
  }
  restored_.problems.push_back(
      fmt::format("checkpoint {} and its segments are kept in {}", number,
                  folder.string()));
  damaged_.erase(number);
}

void Checkpointer::VerifyKept() {
  std::vector<uint64_t> numbers;
  {
    MutexLock lock(mutex_);
    for (const auto& [number, head] : kept_) {
      if (!verified_.contains(number)) numbers.push_back(number);
    }
  }
  for (const uint64_t number : numbers) {
    std::string problem;
    try {
      const CheckpointFile file = ReadCheckpointFile(options_.folder, number);
      EncodedSnapshot encoded = DecodePlaces(file.snapshot());
      {
        // this process has read or written these chunks itself
        MutexLock lock(mutex_);
        std::erase_if(encoded.places,
                      [&](const EncodedSnapshot::Place& place)
                          REQUIRES(mutex_) {
                            const auto known = locations_.find(place.serial);
                            return known != locations_.end() &&
                                   known->second == place.location;
                          });
      }
      CheckPlaces(options_.folder, encoded);
    } catch (const IoError& e) {
      problem = e.what();
    }
    MutexLock lock(mutex_);
    if (problem.empty()) {
      verified_.insert(number);
    } else {
      spdlog::warn("checkpoint {}: {}", number, problem);
      damaged_[number] = std::move(kept_.extract(number).mapped());
      SetAside(number);
    }
  }
}

void Checkpointer::RestoreFrom(uint64_t number) {
  const CheckpointFile file = ReadCheckpointFile(options_.folder, number);
  const EncodedSnapshot encoded = DecodePlaces(file.snapshot());
  ShardSnapshot snapshot = DecodeSnapshot(encoded, ReadChunks(encoded));
  restored_.left_out_items =
      shard_->config().has_float_rows ? LeaveOutBad(&snapshot) : 0;
  // the shard is changed only once everything has been read
  shard_->Restore(snapshot);

  for (const EncodedSnapshot::Place& place : encoded.places) {
    locations_[place.serial] = place.location;
    SegmentInfo& info = segments_[place.location.segment];
    info.max_serial = std::max(info.max_serial, place.serial);
  }
}

std::vector<std::shared_ptr<StoredChunk>> Checkpointer::ReadChunks(
    const EncodedSnapshot& encoded) {
  std::vector<std::shared_ptr<StoredChunk>> chunks(encoded.places.size());
  // an upper bound of the bytes still to come: while they exceed the memory,
  // chunks go to the disk at once, so that the last ones fit into memory
  std::set<uint64_t> segments;
  for (const auto& place : encoded.places) {
    segments.insert(place.location.segment);
  }
  int64_t bytes_left = 0;
  for (const uint64_t number : segments) {
    bytes_left += segments_[number].size_bytes;
  }
  ReadPlaces(options_.folder, encoded,
             [&](size_t index, const SegmentRecord& record) {
               chunks[index] = shard_->MakeChunk(
                   {record.block.begin(), record.block.end()}, record.serial,
                   record.writer, record.sequence,
                   /*wants_disk=*/bytes_left > shard_->config().max_bytes);
               bytes_left -= static_cast<int64_t>(record.block.size());
               CountRestoredChunk();
             });
  return chunks;
}

void Checkpointer::CountRestoredChunk() const {
  if (options_.on_restored_chunk()) return;
  throw RestoreStopped(
      fmt::format("{}: the restore was stopped", options_.folder.string()));
}

void Checkpointer::ReplayJournal(uint64_t first_segment) {
  uint64_t last_serial = shard_->last_serial();
  for (const uint64_t number :
       ListNumbered(options_.folder, "segment", "log")) {
    if (number < first_segment) continue;
    const std::filesystem::path path = SegmentPath(options_.folder, number);
    SegmentInfo& info = segments_[number];
    try {
      const int64_t left = ReadAllRecords(
          path, number,
          [&](int64_t offset, const SegmentRecord& record) REQUIRES(mutex_) {
            info.max_serial = std::max(info.max_serial, record.serial);
            if (record.serial == 0) {
              shard_->ReplayLimiters(DecodeLimiters(record.block));
              return;
            }
            // skip a chunk that was written twice or is in the checkpoint
            if (record.serial <= last_serial) return;
            last_serial = record.serial;
            if (shard_->config().has_float_rows &&
                !ChunkView(record.block, shard_->config().shape)
                     .HasFiniteRows()) {
              ++restored_.left_out_chunks;
              return;
            }
            const InsertResult result =
                shard_->Replay(record.serial, record.writer, record.sequence,
                               {record.block.begin(), record.block.end()});
            if (result != InsertResult::kInserted &&
                result != InsertResult::kWait) {
              restored_.problems.push_back(
                  fmt::format("{}: the chunk at byte {} no longer fits",
                              path.string(), offset));
            }
            locations_[record.serial] = {number, offset};
            ++restored_.journal_chunks;
            CountRestoredChunk();
          });
      if (left > 0) {
        restored_.problems.push_back(
            fmt::format("{}: its last {} bytes are not a whole record",
                        path.string(), left));
      }
    } catch (const IoError& e) {
      restored_.problems.emplace_back(e.what());
    }
  }
}

std::string FindDamage(const std::filesystem::path& folder, uint64_t id) {
  std::string problem =
      fmt::format("{}: no checkpoint of id {}", folder.string(), id);
  const auto numbers = ListNumbered(folder, "checkpoint", "ckpt");
  for (auto number = numbers.rbegin(); number != numbers.rend(); ++number) {
    try {
      if (ReadCheckpointHead(folder, *number).id != id) continue;
      const CheckpointFile file = ReadCheckpointFile(folder, *number);
      CheckPlaces(folder, DecodePlaces(file.snapshot()));
      return "";
    } catch (const IoError& e) {
      problem = e.what();
    }
  }
  return problem;
}

}  // namespace replicant::replay
