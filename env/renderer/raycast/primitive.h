#pragma once

#include <mujoco/mujoco.h>

#include <memory>

#include "env/renderer/raycast/snapshot.h"

namespace replicant::env::raycast {

// Whether a point lies behind a plane.
bool IsBehind(const Primitive& plane, const Float3& point);

// Takes over a geom of `scene`, seen by the camera of `view`: all but the
// rectangles where it is seen. `moving` keeps triangles that are made for this
// picture. Throws UnsupportedScene if the geom cannot be drawn.
Primitive TakeGeom(const mjModel& model, const mjvScene& scene,
                   const mjvGeom& geom, const Assets& assets,
                   const Snapshot& view, std::unique_ptr<TriangleSet>& moving);

}  // namespace replicant::env::raycast
