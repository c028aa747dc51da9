#pragma once

#include <mujoco/mujoco.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "env/renderer/gl_context.h"

namespace replicant::env {

// How pictures are made.
enum class RendererKind {
  // Our own ray caster on the CPU: no driver, 0.1 ms a picture, the same bits
  // on every machine (env/renderer/raycast/raycast_renderer.h).
  kRaycast,
  // MuJoCo's own OpenGL renderer: dm_control's pictures to the bit.
  kGl,
};

// "raycast", "gl".
std::string_view ToString(RendererKind kind);
// Throws InvalidArgument for any other name.
RendererKind ParseRendererKind(std::string_view name);

struct RendererOptions {
  RendererKind kind = RendererKind::kRaycast;
  // Where OpenGL comes from; used by kGl only.
  GlPlatform gl_platform = GlPlatform::kAuto;
  int egl_device = 0;
};

// Draws what a camera of a MuJoCo model sees, with the visual defaults of
// dm_control: all categories of geoms, skins and sites of groups 0-2,
// textures, shadows, reflection, sky box, four samples per pixel; no range
// finder rays.
//
// A renderer is made for one model, whose textures, meshes and height fields
// it keeps. Render() may be given that model later with other numbers in it
// (colours, sizes, positions, lights), or a copy of it; after a change of
// hfield_data, tex_data or mesh_* call ReloadAssets().
//
// Thread-safety: one thread at a time; different renderers are independent.
class Renderer {
 public:
  virtual ~Renderer() = default;

  // Draws the state in `data` as it stands: positions of bodies, cameras and
  // lights must be up to date (mj_step1, mj_forward or mj_kinematics, mj_comPos
  // and mj_camlight). `data` is only written to by MuJoCo's scratch stack.
  //
  //   camera   id of a camera of the model, or -1 for the default free camera
  //   rgb      uint8 [height, width, 3], row 0 on top
  //
  // Throws InvalidArgument if `camera` does not exist, a side is not in
  // [1, 4096], or `rgb` does not have height * width * 3 bytes;
  // UnsupportedScene if the scene holds what this renderer cannot draw.
  virtual void Render(const mjModel& model, mjData& data, int camera,
                      int height, int width, std::span<uint8_t> rgb) = 0;

  // Takes over changed height fields, textures and meshes.
  virtual void ReloadAssets(const mjModel& model) = 0;

  // A renderer of the same kind for a copy of this one's model, with the same
  // assets, which the two share where they can. Throws as MakeRenderer() does.
  virtual std::unique_ptr<Renderer> MakeSibling(const mjModel& model) const = 0;
};

// Makes a renderer of `options.kind` for `model`.
// Throws DeviceError if OpenGL is asked for and cannot be had on this machine;
// UnsupportedScene if the model has assets that the renderer cannot draw.
std::unique_ptr<Renderer> MakeRenderer(const mjModel& model,
                                       const RendererOptions& options);

}  // namespace replicant::env
