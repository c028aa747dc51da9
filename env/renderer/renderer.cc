#include "env/renderer/renderer.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "env/renderer/auto_renderer.h"
#include "env/renderer/gl_renderer.h"
#include "env/renderer/raycast/raycast_renderer.h"

namespace replicant::env {

namespace {

constexpr std::array<std::pair<RendererKind, std::string_view>, 3> kNames = {
    {{RendererKind::kAuto, "auto"},
     {RendererKind::kRaycast, "raycast"},
     {RendererKind::kGl, "gl"}}};

}  // namespace

std::string_view ToString(RendererKind kind) {
  return kNames.at(static_cast<size_t>(kind)).second;
}

RendererKind ParseRendererKind(std::string_view name) {
  for (const auto& [kind, known] : kNames) {
    if (known == name) return kind;
  }
  throw InvalidArgument(
      fmt::format("renderer '{}' given; allowed: auto, raycast, gl", name));
}

std::unique_ptr<Renderer> MakeRenderer(const mjModel& model,
                                       const RendererOptions& options) {
  switch (options.kind) {
    case RendererKind::kAuto:
      return MakeAutoRenderer(model, options);
    case RendererKind::kRaycast:
      return std::make_unique<RaycastRenderer>(model);
    case RendererKind::kGl:
      break;
  }
  return std::make_unique<GlRenderer>(model, options.gl_platform,
                                      options.egl_device);
}

}  // namespace replicant::env
