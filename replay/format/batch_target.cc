#include "replay/format/batch_target.h"

#include <fmt/format.h>

#include "base/error.h"

namespace replicant::replay {

void BatchTarget::Check(uint32_t count, const StepShape& shape,
                        const BatchForm& form) const {
  const uint64_t size = memory->bytes().size();
  const auto check = [&](const char* name, uint64_t offset, uint64_t bytes) {
    if (offset <= size && bytes <= size - offset) return;
    throw InvalidArgument(
        fmt::format("replay.sample: place: {} bytes of {} at offset {} do not "
                    "fit into a memory of {}",
                    bytes, name, offset, size));
  };
  const uint64_t rows = uint64_t{place.first_row} + count;
  if (rows > kMaxItemsPerBatch) {
    throw InvalidArgument(fmt::format(
        "replay.sample: place: {} rows from row {} on; a batch has at most {}",
        count, place.first_row, kMaxItemsPerBatch));
  }
  const auto bytes_of = [rows](int64_t row_bytes) {
    return rows * static_cast<uint64_t>(row_bytes);
  };
  const RowBytes row = form.BytesOf(shape);
  check("observations", place.observations, bytes_of(row.observations));
  check("next_observations", place.next_observations,
        bytes_of(row.next_observations));
  check("actions", place.actions, bytes_of(row.actions));
  check("frames", place.frames, bytes_of(row.frames));
  check("next_frames", place.next_frames, bytes_of(row.next_frames));
  check("segments", place.segments, place.segments_bytes);
}

}  // namespace replicant::replay
