#pragma once

#include <mujoco/mujoco.h>

#include <memory>

#include "env/renderer/renderer.h"

namespace replicant::env {

// The ray caster; or OpenGL, with a warning in the log, for a model that the
// ray caster cannot draw. It then draws every scene that Render() makes of the
// model. Throws DeviceError with both reasons if OpenGL is missing, too.
std::unique_ptr<Renderer> MakeAutoRenderer(const mjModel& model,
                                           const RendererOptions& options);

}  // namespace replicant::env
