// The reading half of Checkpointer; the rest is in replay/checkpointer.cc.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "core/base/error.h"
#include "replay/checkpoint_file.h"
#include "replay/checkpointer.h"

namespace replicant::replay {

void Checkpointer::RestoreNewest() {
  const auto segments = ListNumbered(options_.folder, "segment", "log");
  const auto ids = ListNumbered(options_.folder, "checkpoint", "ckpt");
  // numbers are never used twice, whatever the files of the others are worth
  if (!segments.empty()) next_segment_ = *segments.rbegin() + 1;
  if (!ids.empty()) last_id_ = *ids.rbegin();

  uint64_t journal_segment = 0;
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
    try {
      RestoreFrom(*id);
      restored_.id = *id;
      journal_segment = kept_.at(*id).journal_segment;
      break;
    } catch (const IoError& e) {
      restored_.problems.emplace_back(e.what());
      spdlog::warn("checkpoint {} is passed over: {}", *id, e.what());
    }
  }
  if (options_.durability == Durability::kJournal) {
    ReplayJournal(journal_segment);
  }
}

void Checkpointer::RestoreFrom(uint64_t id) {
  const CheckpointFile file = ReadCheckpointFile(options_.folder, id);
  const EncodedSnapshot encoded = DecodePlaces(file.snapshot());
  const ShardSnapshot snapshot = DecodeSnapshot(encoded, ReadGroups(encoded));
  // the shard is changed only once everything has been read
  shard_->Restore(snapshot);

  Kept kept;
  kept.journal_segment = file.journal_segment;
  for (const EncodedSnapshot::Place& place : encoded.places) {
    locations_[place.serial] = place.location;
    kept.segments.insert(place.location.segment);
    SegmentInfo& info = segments_[place.location.segment];
    info.max_serial = std::max(info.max_serial, place.serial);
  }
  for (auto& [number, info] : segments_) {
    info.size_bytes = static_cast<int64_t>(
        std::filesystem::file_size(SegmentPath(options_.folder, number)));
  }
  kept_[id] = std::move(kept);
}

std::vector<std::shared_ptr<Group>> Checkpointer::ReadGroups(
    const EncodedSnapshot& encoded) {
  // one pass over each segment, in the order of its bytes
  std::map<uint64_t, std::vector<std::pair<int64_t, size_t>>> by_segment;
  for (size_t i = 0; i < encoded.places.size(); ++i) {
    const GroupLocation& location = encoded.places[i].location;
    by_segment[location.segment].push_back({location.offset, i});
  }
  std::vector<std::shared_ptr<Group>> groups(encoded.places.size());
  for (auto& entry : by_segment) {
    // names, not bindings: clang 14 lets no lambda capture those
    const uint64_t number = entry.first;
    auto& places = entry.second;
    std::sort(places.begin(), places.end());
    std::vector<int64_t> offsets;
    for (const auto& [offset, index] : places) offsets.push_back(offset);
    size_t next = 0;
    const std::filesystem::path path = SegmentPath(options_.folder, number);
    ReadRecords(
        path, number, offsets,
        [&](int64_t offset, const SegmentRecord& record) {
          const size_t index = places[next++].second;
          if (record.serial != encoded.places[index].serial) {
            throw IoError(fmt::format("{}: group {} at byte {}, want {}",
                                      path.string(), record.serial, offset,
                                      encoded.places[index].serial));
          }
          auto group = std::make_shared<Group>(
              std::vector<std::byte>(record.block.begin(), record.block.end()),
              shard_->config().shape);
          group->serial = record.serial;
          group->writer = record.writer;
          group->sequence = record.sequence;
          groups[index] = std::move(group);
        });
  }
  return groups;
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
          path, number, [&](int64_t offset, const SegmentRecord& record) {
            info.max_serial = std::max(info.max_serial, record.serial);
            // a group that was written again, or was in the checkpoint
            if (record.serial <= last_serial) return;
            last_serial = record.serial;
            const InsertResult result =
                shard_->Replay(record.serial, record.writer, record.sequence,
                               {record.block.begin(), record.block.end()});
            if (result != InsertResult::kInserted &&
                result != InsertResult::kWait) {
              restored_.problems.push_back(
                  fmt::format("{}: the group at byte {} does not fit any more",
                              path.string(), offset));
            }
            locations_[record.serial] = {number, offset};
            ++restored_.journal_groups;
          });
      if (left > 0) {
        restored_.problems.push_back(fmt::format(
            "{}: its last {} bytes are no whole record", path.string(), left));
      }
    } catch (const IoError& e) {
      restored_.problems.emplace_back(e.what());
    }
    info.size_bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  }
}

}  // namespace replicant::replay
