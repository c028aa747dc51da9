#pragma once

#include <mujoco/mujoco.h>

#include "env/renderer/raycast/snapshot.h"

namespace replicant::env::raycast {

// Throws UnsupportedScene if `scene` has rendering flags, labels or other
// effects of mjr_render that cannot be drawn. `is_lit` is false for depth and
// segmentation, which have none of the effects of light.
void CheckEffects(const mjvScene& scene, bool is_lit);

// Takes away from `snapshot` what the rendering flags of its scene turn off:
// shadow, reflection or sky box.
void ApplyFlags(const mjvScene& scene, Snapshot& snapshot);

}  // namespace replicant::env::raycast
