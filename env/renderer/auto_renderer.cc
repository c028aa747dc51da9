#include "env/renderer/auto_renderer.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <string_view>
#include <utility>

#include "env/renderer/gl_renderer.h"
#include "env/renderer/raycast/raycast_renderer.h"

namespace replicant::env {

AutoRenderer::AutoRenderer(const mjModel& model, const RendererOptions& options)
    : options_(options) {
  try {
    renderer_ = std::make_unique<RaycastRenderer>(model);
  } catch (const UnsupportedScene& reason) {
    ChangeOver(model, reason);
  }
}

AutoRenderer::AutoRenderer(const RendererOptions& options, bool has_changed,
                           std::unique_ptr<Renderer> renderer)
    : options_(options),
      has_changed_(has_changed),
      renderer_(std::move(renderer)) {}

void AutoRenderer::Render(const mjModel& model, mjData& data, int camera,
                          int height, int width, std::span<uint8_t> rgb) {
  if (!has_changed_) {
    try {
      renderer_->Render(model, data, camera, height, width, rgb);
      return;
    } catch (const UnsupportedScene& reason) {
      ChangeOver(model, reason);
    }
  }
  renderer_->Render(model, data, camera, height, width, rgb);
}

std::unique_ptr<Renderer> AutoRenderer::MakeSibling(
    const mjModel& model) const {
  return std::unique_ptr<Renderer>(
      new AutoRenderer(options_, has_changed_, renderer_->MakeSibling(model)));
}

void AutoRenderer::ChangeOver(const mjModel& model,
                              const UnsupportedScene& reason) {
  try {
    renderer_ = std::make_unique<GlRenderer>(model, options_.gl_platform,
                                             options_.egl_device);
  } catch (const DeviceError& error) {
    throw DeviceError(fmt::format("{}; gl: {}", reason.what(), error.what()));
  }
  has_changed_ = true;
  if (!background_.empty()) renderer_->SetBackground(background_);
  static std::atomic_flag has_warned;
  if (has_warned.test_and_set()) return;
  const std::string_view why = reason.what();
  spdlog::warn(
      "{}: renderer auto switches to gl, which takes 10 to 60 ms per picture "
      "without a GPU",
      why.substr(0, why.find("; hint")));
}

}  // namespace replicant::env
