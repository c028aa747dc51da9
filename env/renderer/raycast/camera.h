#pragma once

#include <mujoco/mujoco.h>

#include "env/renderer/raycast/snapshot.h"

namespace replicant::env::raycast {

// The middle of two cameras, as mjv_averageCamera() gives it. Written here,
// because the ray caster also draws scenes of other versions of MuJoCo, whose
// functions expect other structures.
mjvGLCamera AverageCamera(const mjvGLCamera& a, const mjvGLCamera& b);

// Takes over the camera of `scene`: rays, depths and orientation. Needs the
// size of the picture in `s`.
void TakeCamera(const mjvScene& scene, Snapshot& s);

}  // namespace replicant::env::raycast
