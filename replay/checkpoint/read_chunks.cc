#include "replay/checkpoint/read_chunks.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "replay/checkpoint/checkpoint_file.h"
#include "replay/store/numbered_files.h"
#include "replay/table/snapshot.h"

namespace replicant::replay {
namespace {

// The newest whole checkpoint of the id; 0: of all.
CheckpointFile FindCheckpoint(const std::filesystem::path& folder,
                              uint64_t id) {
  std::string problem =
      id == 0 ? fmt::format("{}: no checkpoint of a replay", folder.string())
              : fmt::format("{}: no checkpoint of id {}", folder.string(), id);
  const auto numbers = ListNumbered(folder, "checkpoint", "ckpt");
  for (auto number = numbers.rbegin(); number != numbers.rend(); ++number) {
    try {
      if (id != 0 && ReadCheckpointHead(folder, *number).id != id) continue;
      return ReadCheckpointFile(folder, *number);
    } catch (const IoError& error) {
      problem = error.what();
    }
  }
  throw IoError(problem);
}

}  // namespace

CheckpointLayout ReadChunks(
    const std::filesystem::path& folder, uint64_t id,
    const std::function<void(const SegmentRecord& record)>& visit) {
  const CheckpointFile file = FindCheckpoint(folder, id);
  const std::optional<CheckpointLayout> layout = ReadLayout(folder);
  if (!layout) throw IoError(fmt::format("{}: no layout", folder.string()));
  const EncodedSnapshot encoded = DecodePlaces(file.snapshot());
  const auto& places = encoded.places;  // in the order of their serials
  for (size_t begin = 0; begin < places.size();) {
    // a run of records that one pass over a segment finds
    const uint64_t segment = places[begin].location.segment;
    std::vector<int64_t> offsets;
    size_t end = begin;
    while (end < places.size() && places[end].location.segment == segment &&
           (offsets.empty() || places[end].location.offset > offsets.back())) {
      offsets.push_back(places[end++].location.offset);
    }
    const std::filesystem::path path = SegmentPath(folder, segment);
    size_t next = begin;
    ReadRecords(path, segment, offsets,
                [&](int64_t offset, const SegmentRecord& record) {
                  const uint64_t serial = places[next++].serial;
                  if (record.serial != serial) {
                    throw IoError(fmt::format(
                        "{}: chunk {} at byte {}, expected chunk {}",
                        path.string(), record.serial, offset, serial));
                  }
                  visit(record);
                });
    begin = end;
  }
  return *layout;
}

}  // namespace replicant::replay
