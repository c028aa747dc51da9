#pragma once

#include "env/mujoco.h"

namespace replicant::env {

// Fits a model's bounding volumes to its present numbers, as MuJoCo's compiler
// does and mj_setConst() does not: geom_rbound and geom_aabb of all geoms but
// planes and signed distance fields, and bvh_aabb of bodies. Collisions and
// rays miss what stands out of its volume.
//
// `has_new_vertices`: also those of meshes, whose vertices have changed.
//
// The trees of the volumes stay, as well as what else the compiler derives from
// a mesh: its normals, its convex hull and its inertia.
void FitBounds(mjModel& model, bool has_new_vertices);

}  // namespace replicant::env
