#pragma once

#include <mujoco/mujoco.h>

#include <memory>
#include <span>

#include "env/renderer/renderer.h"
#include "env/renderer/scene.h"

namespace replicant::env {

// The ray caster, or MuJoCo's OpenGL renderer for scenes that the ray caster
// cannot draw. Switches once, at the first such scene; the first switch of a
// process logs a warning with the reason.
//
// Thread-safety: one thread at a time.
class AutoRenderer : public Renderer {
 public:
  // Throws DeviceError, with both reasons, if neither can draw the model's
  // assets.
  AutoRenderer(const mjModel& model, const RendererOptions& options);

  // Throws DeviceError, with both reasons, if neither can draw the scene.
  void Render(const mjModel& model, mjData& data, int camera, int height,
              int width, std::span<uint8_t> rgb) override;
  void SetBackground(std::span<const uint8_t> rgb) override {
    background_ = rgb;
    renderer_->SetBackground(rgb);
  }
  void ReloadAssets(const mjModel& model) override {
    renderer_->ReloadAssets(model);
  }
  std::unique_ptr<Renderer> MakeSibling(const mjModel& model) const override;

 private:
  AutoRenderer(const RendererOptions& options, bool has_changed,
               std::unique_ptr<Renderer> renderer);

  // Switches to OpenGL, because of `reason`.
  void ChangeOver(const mjModel& model, const UnsupportedScene& reason);

  RendererOptions options_;
  bool has_changed_ = false;
  std::span<const uint8_t> background_;
  std::unique_ptr<Renderer> renderer_;
};

}  // namespace replicant::env
