#pragma once

#include <mujoco/mujoco.h>

#include <memory>
#include <span>

#include "env/renderer/raycast/frame.h"
#include "env/renderer/raycast/snapshot.h"
#include "env/renderer/raycast/tables.h"
#include "env/renderer/renderer.h"
#include "env/renderer/scene.h"

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
// Thread-safety: one thread at a time; siblings share only constant assets.
class RaycastRenderer : public Renderer {
 public:
  explicit RaycastRenderer(const mjModel& model);

  void Render(const mjModel& model, mjData& data, int camera, int height,
              int width, std::span<uint8_t> rgb) override;
  void ReloadAssets(const mjModel& model) override;
  std::unique_ptr<Renderer> MakeSibling(const mjModel& model) const override;

 private:
  RaycastRenderer(const mjModel& model,
                  std::shared_ptr<const raycast::Assets> assets);

  Scene scene_;
  raycast::Tables tables_;
  // shared with siblings; replaced when they are reloaded
  std::shared_ptr<const raycast::Assets> assets_;
  raycast::Sky sky_;
};

}  // namespace replicant::env
