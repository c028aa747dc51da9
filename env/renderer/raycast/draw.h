#pragma once

#include <cstdint>
#include <span>

#include "env/renderer/raycast/frame.h"
#include "env/renderer/raycast/snapshot.h"
#include "env/renderer/raycast/tables.h"

namespace replicant::env::raycast {

// Draws `snapshot` into `rgb`, uint8 [height, width, 3], with the widest
// vectors of this processor. All widths give the same result. `sky` is reused
// from picture to picture; `frame` is working memory only.
void Draw(const Snapshot& snapshot, const Tables& tables, Frame& frame,
          Sky& sky, std::span<uint8_t> rgb);

// The instruction sets that Draw() is compiled for, as a mask of Highway's
// HWY_* targets.
int64_t CompiledTargets();

}  // namespace replicant::env::raycast
