#pragma once

#include <mujoco/mujoco.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "env/renderer/gl_context.h"

namespace replicant::env {

// The method of rendering.
enum class RendererKind {
  // The ray caster, or gl for scenes that it cannot draw
  // (env/renderer/auto_renderer.h).
  kAuto,
  // Ray caster on the CPU: no driver, 0.1 ms per picture, the same bits on
  // every machine (env/renderer/raycast/raycast_renderer.h).
  kRaycast,
  // MuJoCo's own OpenGL renderer: dm_control's pictures to the bit.
  kGl,
};

// "auto", "raycast", "gl".
std::string_view ToString(RendererKind kind);
// Throws InvalidArgument for any other name.
RendererKind ParseRendererKind(std::string_view name);

struct RendererOptions {
  RendererKind kind = RendererKind::kAuto;
  // Provider of OpenGL; used by gl only.
  GlPlatform gl_platform = GlPlatform::kAuto;
  int egl_device = 0;
};

// Renders the view of a camera of a MuJoCo model with the visual defaults of
// dm_control: all categories of geoms, skins and sites of groups 0-2, textures,
// shadows, reflection, sky box, four samples per pixel; no range finder rays.
//
// A renderer belongs to one model and keeps copies of its textures, meshes and
// height fields. Render() accepts the same model with other values (colours,
// sizes, positions, lights) or a copy of it. ReloadAssets() must follow a
// change of hfield_data, tex_data or mesh_*.
//
// Thread-safety: one thread at a time; different renderers are independent.
class Renderer {
 public:
  virtual ~Renderer() = default;

  // Draws the state in `data`. Positions of bodies, cameras and lights must be
  // up to date (mj_step1, mj_forward or mj_kinematics, mj_comPos and
  // mj_camlight). Only MuJoCo's scratch stack in `data` is written.
  //
  //   camera   id of a camera of the model, or -1 for the default free camera
  //   rgb      uint8 [height, width, 3], row 0 on top
  //
  // Throws InvalidArgument if `camera` does not exist, a side is not in
  // [1, 4096], or `rgb` does not have height * width * 3 bytes;
  // UnsupportedScene if this renderer cannot draw the scene.
  virtual void Render(const mjModel& model, mjData& data, int camera,
                      int height, int width, std::span<uint8_t> rgb) = 0;

  // Draws `rgb`, uint8 [height, width, 3], where the sky would be seen, in the
  // pictures from now on; the sky again if it is empty. The pixels are borrowed
  // until they are replaced, and may change in between. Render() throws
  // InvalidArgument for a picture of another size. Throws UnsupportedScene
  // if this renderer draws no background.
  virtual void SetBackground(std::span<const uint8_t> rgb) = 0;

  // Reloads height fields, textures and meshes after a change.
  virtual void ReloadAssets(const mjModel& model) = 0;

  // Makes a renderer of the same kind for a copy of this model. Both share
  // assets where possible. Throws as MakeRenderer() does.
  virtual std::unique_ptr<Renderer> MakeSibling(const mjModel& model) const = 0;
};

// Makes a renderer of `options.kind` for `model`.
// Throws DeviceError if OpenGL is requested but missing on this machine,
// UnsupportedScene if the renderer cannot draw the model's assets.
std::unique_ptr<Renderer> MakeRenderer(const mjModel& model,
                                       const RendererOptions& options);

}  // namespace replicant::env
