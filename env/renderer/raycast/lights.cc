#include "env/renderer/raycast/lights.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "env/renderer/raycast/float3.h"

namespace replicant::env::raycast {
namespace {

// OpenGL's fixed pipeline has eight lights; MuJoCo's calls for further ones
// have no effect.
constexpr int kMaxLights = 8;

// Axes of the shadow map's square, as mjr_render chooses them.
void SetShadowAxes(Light& light) {
  Float3 up = Cross(light.direction, {-1, 0, 0});
  if (Dot(up, up) <= 0.01f) up = Cross(light.direction, {0, 1, 0});
  light.shadow_x = Normalized(Cross(light.direction, Normalized(up)));
  light.shadow_y = Normalized(Cross(light.shadow_x, light.direction));
}

Light TakeLight(const mjModel& model, const mjvLight& from, float near_depth) {
  Light light;
  light.is_directional = from.type == mjLIGHT_DIRECTIONAL;
  light.casts_shadow = from.castshadow != 0 && model.vis.quality.shadowsize > 0;
  light.position = ToFloat3(from.pos);
  light.direction = Normalized(ToFloat3(from.dir));
  light.ambient = ToFloat3(from.ambient);
  light.diffuse = ToFloat3(from.diffuse);
  light.specular = ToFloat3(from.specular);
  light.shadow_near = near_depth;
  SetShadowAxes(light);
  if (light.is_directional) {
    light.attenuation = {1, 0, 0};
    light.shadow_half =
        static_cast<float>(model.stat.extent) * model.vis.map.shadowclip;
    return light;
  }
  light.attenuation = ToFloat3(from.attenuation);
  constexpr double kRadians = std::numbers::pi / 180;
  // OpenGL knows cutoffs up to 90 degrees and 180, a light without a cone,
  // which it keeps where another one is set
  light.cos_cutoff =
      from.cutoff > 90
          ? -2.0f
          : static_cast<float>(std::cos(double{from.cutoff} * kRadians));
  light.exponent = from.exponent;
  const double angle =
      std::min(2.0 * from.cutoff * model.vis.map.shadowscale, 160.0);
  light.shadow_half = static_cast<float>(std::tan(0.5 * angle * kRadians));
  return light;
}

}  // namespace

void TakeLights(const mjModel& model, const mjvScene& scene, Snapshot& s) {
  s.lights.clear();
  for (int i = 0; i < std::min(scene.nlight, kMaxLights); ++i) {
    const mjvLight& light = scene.lights[i];
    // mjr_render leaves out point and image lights
    if (light.type != mjLIGHT_DIRECTIONAL && light.type != mjLIGHT_SPOT) {
      continue;
    }
    s.lights.push_back(TakeLight(model, light, s.near_depth));
  }
  // MuJoCo's light of last resort
  const float ambient = s.lights.empty() ? 0.3f : 0.0f;
  s.global_ambient = {ambient, ambient, ambient};
}

}  // namespace replicant::env::raycast
