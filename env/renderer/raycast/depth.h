#pragma once

#include <cstdint>
#include <span>

#include "env/renderer/raycast/snapshot.h"
#include "env/renderer/raycast/tables.h"

namespace replicant::env::raycast {

// Finds what the middle of each pixel sees, as OpenGL draws it without
// multisampling: curved shapes are the polyhedra of MuJoCo's display lists.
// Transparent primitives count like opaque ones, and there is no sky.
//
//   is_shown    by primitive: whether it counts
//   nearness    [height, width], 1 / depth in 1/m; 1 / far where nothing is
//   primitive   [height, width], index of the primitive; -1: none
//
// Uses the widest vectors of this processor; all widths give the same result.
void FindNearest(const Snapshot& snapshot, const Tables& tables,
                 std::span<const uint8_t> is_shown, std::span<float> nearness,
                 std::span<int32_t> primitive);

}  // namespace replicant::env::raycast
