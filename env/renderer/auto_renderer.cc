#include "env/renderer/auto_renderer.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <string_view>

#include "env/renderer/gl_renderer.h"
#include "env/renderer/raycast/raycast_renderer.h"

namespace replicant::env {

std::unique_ptr<Renderer> MakeAutoRenderer(const mjModel& model,
                                           const RendererOptions& options) {
  try {
    return std::make_unique<RaycastRenderer>(model);
  } catch (const UnsupportedScene& reason) {
    const std::string_view why = reason.what();
    try {
      auto gl = std::make_unique<GlRenderer>(model, options.gl_platform,
                                             options.egl_device);
      spdlog::warn(
          "{}: renderer auto is gl, which takes 10 to 60 ms per picture "
          "without a GPU",
          why.substr(0, why.find("; hint")));
      return gl;
    } catch (const DeviceError& error) {
      throw DeviceError(fmt::format("{}; gl: {}", why, error.what()));
    }
  }
}

}  // namespace replicant::env
