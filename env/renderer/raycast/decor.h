#pragma once

#include <mujoco/mujoco.h>

#include "env/renderer/raycast/snapshot.h"
#include "env/renderer/raycast/triangles.h"

namespace replicant::env::raycast {

// Geoms that few scenes show, as the triangles of MuJoCo's display lists. They
// are made anew for each picture.

// An arrow or a triangle, in the geom's coordinates.
TriangleSet MakeDecor(const mjModel& model, const mjvGeom& geom);

// A line or the edges of a box, as bands that face the camera of `view` and are
// as wide as OpenGL's lines. In the world's coordinates.
TriangleSet MakeLines(const mjModel& model, const Snapshot& view,
                      const mjvGeom& geom);

// The convex hull of mesh `id`, empty if it has none.
TriangleSet MakeHull(const mjModel& model, int id);

// A flex without its faces: balls at the vertices and tubes along the edges,
// as the options of `scene` show them. In the world's coordinates.
TriangleSet MakeFlexFrame(const mjModel& model, const mjvScene& scene,
                          const mjvGeom& geom);

}  // namespace replicant::env::raycast
