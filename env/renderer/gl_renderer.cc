#include "env/renderer/gl_renderer.h"

#include <algorithm>

namespace replicant::env {

GlRenderer::GlRenderer(const mjModel& model, GlPlatform platform,
                       int egl_device)
    : platform_(platform),
      egl_device_(egl_device),
      scene_(model),
      context_(GlContext::Make(platform, egl_device)) {
  const GlContext::Scope current(*context_);
  mjr_defaultContext(&resources_);
  mjr_makeContext(&model, &resources_, mjFONTSCALE_150);
  mjr_setBuffer(mjFB_OFFSCREEN, &resources_);
}

GlRenderer::~GlRenderer() {
  const GlContext::Scope current(*context_);
  mjr_freeContext(&resources_);
}

void GlRenderer::Render(const mjModel& model, mjData& data, int camera,
                        int height, int width, std::span<uint8_t> rgb) {
  CheckImage(height, width, rgb);
  RenderScene(scene_.Update(model, data, camera), height, width, rgb);
}

void GlRenderer::RenderScene(mjvScene& scene, int height, int width,
                             std::span<uint8_t> rgb) {
  CheckImage(height, width, rgb);
  bottom_up_.resize(rgb.size());

  {
    const GlContext::Scope current(*context_);
    if (width > resources_.offWidth || height > resources_.offHeight) {
      mjr_resizeOffscreen(std::max(width, resources_.offWidth),
                          std::max(height, resources_.offHeight), &resources_);
    }
    const mjrRect viewport{
        .left = 0, .bottom = 0, .width = width, .height = height};
    mjr_render(viewport, &scene, &resources_);
    mjr_readPixels(bottom_up_.data(), /*depth=*/nullptr, viewport, &resources_);
  }

  const size_t row_bytes = static_cast<size_t>(width) * 3;
  for (size_t y = 0; y < static_cast<size_t>(height); ++y) {
    const auto* row =
        bottom_up_.data() + (static_cast<size_t>(height) - 1 - y) * row_bytes;
    std::copy_n(row, row_bytes, rgb.data() + y * row_bytes);
  }
}

void GlRenderer::SetBackground(std::span<const uint8_t> rgb) {
  if (rgb.empty()) return;
  throw UnsupportedScene(
      "gl: a background picture is drawn by the ray caster only; hint: "
      "renderer raycast");
}

void GlRenderer::ReloadAssets(const mjModel& model) {
  const GlContext::Scope current(*context_);
  for (int i = 0; i < model.nhfield; ++i) {
    mjr_uploadHField(&model, &resources_, i);
  }
  for (int i = 0; i < model.ntex; ++i) {
    mjr_uploadTexture(&model, &resources_, i);
  }
  for (int i = 0; i < model.nmesh; ++i) {
    mjr_uploadMesh(&model, &resources_, i);
  }
}

std::unique_ptr<Renderer> GlRenderer::MakeSibling(const mjModel& model) const {
  return std::make_unique<GlRenderer>(model, platform_, egl_device_);
}

}  // namespace replicant::env
