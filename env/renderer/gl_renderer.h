#pragma once

#include <mujoco/mujoco.h>

#include <memory>
#include <span>
#include <vector>

#include "env/renderer/gl_context.h"
#include "env/renderer/renderer.h"
#include "env/renderer/scene.h"

namespace replicant::env {

// MuJoCo's own renderer (mjr_render) in an off-screen OpenGL context.
//
// With OSMesa and with EGL of Mesa its pictures equal
// dm_control.mujoco.Physics.render's to the bit: four samples per pixel, shadow
// maps of the model's size, fonts at 150 %. On a processor without a GPU a
// picture of 84 x 84 takes 12-38 ms.
//
// Thread-safety: one thread at a time, which may change between calls.
class GlRenderer : public Renderer {
 public:
  // Throws DeviceError if this platform is missing.
  GlRenderer(const mjModel& model, GlPlatform platform, int egl_device);
  ~GlRenderer() override;

  void Render(const mjModel& model, mjData& data, int camera, int height,
              int width, std::span<uint8_t> rgb) override;
  // Draws a scene that the caller filled by mjv_updateScene(), with its own
  // rendering flags; mjr_render changes it.
  void RenderScene(mjvScene& scene, int height, int width,
                   std::span<uint8_t> rgb);
  void SetBackground(std::span<const uint8_t> rgb) override;
  void ReloadAssets(const mjModel& model) override;
  std::unique_ptr<Renderer> MakeSibling(const mjModel& model) const override;

 private:
  GlPlatform platform_;
  int egl_device_;
  Scene scene_;
  std::unique_ptr<GlContext> context_;
  mjrContext resources_;
  // [height, width, 3], row 0 at the bottom as OpenGL has it
  std::vector<uint8_t> bottom_up_;
};

}  // namespace replicant::env
