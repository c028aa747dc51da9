#pragma once

#include <mujoco/mujoco.h>

#include <memory>
#include <span>

#include "env/renderer/raycast/frame.h"
#include "env/renderer/raycast/snapshot.h"
#include "env/renderer/raycast/tables.h"
#include "env/renderer/renderer.h"
#include "env/renderer/scene_pool.h"

namespace replicant::env {

// A ray caster that reproduces the look of MuJoCo's OpenGL renderer without
// OpenGL.
//
// Four rays per pixel, at llvmpipe's sample positions, find the visible geoms.
// Each geom is then shaded once per pixel like the hit triangle in OpenGL: lit
// at its corners, blended between them, textured with mip maps. Lights with
// shadow have separate passes, each rounded to 8 bits. The code works on
// vectors of pixels; the instruction set is chosen at run time, and all sets
// give the same bits on every machine.
//
// Draws planes, spheres, ellipsoids, capsules, cylinders, boxes, meshes, height
// fields, skins and flexes.
//
// Thread-safety: one thread at a time; siblings may draw at once.
class RaycastRenderer : public Renderer {
 public:
  // Takes over the unchanged textures of `like`, an older renderer of this
  // model, if that is not null. Throws UnsupportedScene for a texture that is
  // left in its file.
  explicit RaycastRenderer(const mjModel& model,
                           const RaycastRenderer* like = nullptr);

  void Render(const mjModel& model, mjData& data, int camera, int height,
              int width, std::span<uint8_t> rgb) override;
  void SetBackground(std::span<const uint8_t> rgb) override {
    background_ = rgb;
  }
  void ReloadAssets(const mjModel& model) override;
  std::unique_ptr<Renderer> MakeSibling(const mjModel& model) const override;

  // The following draw a scene that the caller has filled by mjv_updateScene(),
  // with its own options, camera, geoms and rendering flags; of these, shadow,
  // reflection, sky box and haze can be off, and fog on; others must have their
  // defaults. They call no function of MuJoCo.
  //
  // Throw InvalidArgument if a side is not in [1, 4096] or the output has
  // another size; UnsupportedScene if the scene cannot be drawn.

  // Colours, uint8 [height, width, 3], row 0 on top.
  void RenderScene(const mjModel& model, const mjvScene& scene, int height,
                   int width, std::span<uint8_t> rgb);

  // Distances from the camera's plane at the middle of each pixel, in the
  // model's unit of length: float32 [height, width]. The far plane stands where
  // nothing is. As mujoco.Renderer gives them, whose rounding moves far
  // distances by up to a thousandth.
  void RenderDepth(const mjModel& model, const mjvScene& scene, int height,
                   int width, std::span<float> depth);

  // What the middle of each pixel shows: int32 [height, width, 2], the number
  // of the object and its type (mjtObj); -1, -1 where nothing is. Geoms whose
  // segid is no number of a geom of the scene are left out.
  void RenderSegmentation(const mjModel& model, const mjvScene& scene,
                          int height, int width, std::span<int32_t> objects);

 private:
  RaycastRenderer(const mjModel& model,
                  std::shared_ptr<const raycast::Assets> assets,
                  std::shared_ptr<ScenePool> scenes);

  // shared with siblings
  std::shared_ptr<ScenePool> scenes_;
  raycast::Tables tables_;
  // shared with siblings; replaced when they are reloaded
  std::shared_ptr<const raycast::Assets> assets_;
  raycast::Sky sky_;
  std::span<const uint8_t> background_;
};

}  // namespace replicant::env
