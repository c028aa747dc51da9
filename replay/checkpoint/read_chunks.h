#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "replay/checkpoint/checkpoint_layout.h"
#include "replay/store/segment.h"

namespace replicant::replay {

// Passes the chunks of a checkpoint in `folder` to `visit`, in the order in
// which they were inserted: of the newest whole checkpoint with `id`, or of
// the newest of all if `id` is 0. Takes no lock and changes nothing, so that
// several processes may read one folder at once, but no service may write there
// meanwhile. Returns the folder's layout. Throws IoError if the folder or a
// chunk cannot be read, and what `visit` throws.
CheckpointLayout ReadChunks(
    const std::filesystem::path& folder, uint64_t id,
    const std::function<void(const SegmentRecord& record)>& visit);

}  // namespace replicant::replay
