#pragma once

#include <mujoco/mujoco.h>

#include "env/renderer/raycast/snapshot.h"

namespace replicant::env::raycast {

// Takes over the lights of `scene` that OpenGL would draw. Needs the camera in
// `s`.
void TakeLights(const mjModel& model, const mjvScene& scene, Snapshot& s);

}  // namespace replicant::env::raycast
