#include "env/renderer/renderer.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "env/renderer/gl_renderer.h"
#include "env/renderer/raycast/raycast_renderer.h"

namespace replicant::env {

std::string_view ToString(RendererKind kind) {
  return kind == RendererKind::kGl ? "gl" : "raycast";
}

RendererKind ParseRendererKind(std::string_view name) {
  if (name == "gl") return RendererKind::kGl;
  if (name == "raycast") return RendererKind::kRaycast;
  throw InvalidArgument(
      fmt::format("renderer '{}' given, raycast or gl is allowed", name));
}

std::unique_ptr<Renderer> MakeRenderer(const mjModel& model,
                                       const RendererOptions& options) {
  if (options.kind == RendererKind::kGl) {
    return std::make_unique<GlRenderer>(model, options.gl_platform,
                                        options.egl_device);
  }
  return std::make_unique<RaycastRenderer>(model);
}

}  // namespace replicant::env
