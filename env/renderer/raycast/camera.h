#pragma once

#include <mujoco/mujoco.h>

namespace replicant::env::raycast {

// The middle of two cameras, as mjv_averageCamera() gives it. Written here,
// because the ray caster also draws scenes of other versions of MuJoCo, whose
// functions expect other structures.
mjvGLCamera AverageCamera(const mjvGLCamera& a, const mjvGLCamera& b);

}  // namespace replicant::env::raycast
