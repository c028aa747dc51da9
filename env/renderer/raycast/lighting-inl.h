// OpenGL's lights at the corners of triangles. Included once per instruction
// set.
#include "env/renderer/raycast/intersect-inl.h"

#if defined(REPLICANT_RAYCAST_LIGHTING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_LIGHTING_INL_H_
#undef REPLICANT_RAYCAST_LIGHTING_INL_H_
#else
#define REPLICANT_RAYCAST_LIGHTING_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// Red, green and blue per lane.
using Color = Vec3;

// A light in the local coordinates of a primitive, its colours times the
// primitive's material.
struct LocalLight {
  const Light* light;
  Float3 position, direction;
  Float3 ambient, diffuse, specular;
  bool has_specular;
};

// The surface and all lights that shine on it, in local coordinates.
struct LocalScene {
  Float3 eye;
  float shininess;
  // light that is everywhere: emission and global ambient
  Float3 base;
  std::array<LocalLight, 8> lights;
  int num_lights;
};

// `reflectance` darkens the material's own colour, not its highlights, as
// MuJoCo does for what a mirror shows.
inline LocalScene MakeLocalScene(const Snapshot& snapshot, const Primitive& p,
                                 const Float3& eye, float reflectance) {
  LocalScene scene;
  scene.eye = ToLocal(p, eye);
  scene.shininess = p.shininess;
  Float3 rgb{};
  for (size_t i = 0; i < 3; ++i) {
    rgb[i] = p.rgba[i] * reflectance;
    scene.base[i] = (p.emission + snapshot.global_ambient[i]) * rgb[i];
  }
  scene.num_lights = static_cast<int>(snapshot.lights.size());
  for (size_t k = 0; k < snapshot.lights.size(); ++k) {
    const Light& light = snapshot.lights[k];
    LocalLight& local = scene.lights[k];
    local.light = &light;
    local.position = ToLocal(p, light.position);
    local.direction = RotateBack(p.rotation, light.direction);
    local.has_specular = false;
    for (size_t i = 0; i < 3; ++i) {
      local.ambient[i] = light.ambient[i] * rgb[i];
      local.diffuse[i] = light.diffuse[i] * rgb[i];
      local.specular[i] = light.specular[i] * p.specular;
      local.has_specular |= local.specular[i] > 0;
    }
  }
  return scene;
}

// What one light adds at a surface point with unit normal.
//
//   a * s * (ambient + diffuse * max(0, n.l) + specular * max(0,
//   n.h)^shininess)
//
// with a the attenuation, s the spot light's cone, l towards the light and h
// half way between l and the eye (OpenGL 2.1 specification, 2.14.1, with a
// local viewer).
HWY_INLINE Color Shine(const LocalLight& local, float shininess, Vec3 point,
                       Vec3 normal, Vec3 to_eye) {
  const Light& light = *local.light;
  Vec3 to_light;
  Float strength = Set(1.0f);
  if (light.is_directional) {
    to_light = Set(
        Float3{-local.direction[0], -local.direction[1], -local.direction[2]});
  } else {
    const Vec3 v = Set(local.position) - point;
    const Float distance2 = Dot(v, v) + Set(1e-30f);
    const Float inverse_distance = InverseRoot(distance2);
    to_light = v * inverse_distance;
    const Float3& a = light.attenuation;
    if (a[1] != 0 || a[2] != 0) {
      const Float distance = distance2 * inverse_distance;
      strength = Set(1.0f) /
                 Fma(Fma(Set(a[2]), distance, Set(a[1])), distance, Set(a[0]));
    } else if (a[0] != 1.0f) {
      strength = Set(1.0f / a[0]);
    }
    if (light.cos_cutoff > -1.5f) {
      const Float cone = Zero() - Dot(to_light, Set(local.direction));
      const Mask is_inside = cone >= Set(light.cos_cutoff);
      const Float falloff = Pow(hn::Max(cone, Zero()), light.exponent);
      strength = If(is_inside, strength * falloff, Zero());
    }
  }
  const Float facing = hn::Max(Dot(normal, to_light), Zero());
  Color color = Fma(Set(local.diffuse), facing, Set(local.ambient));
  if (local.has_specular) {
    const Vec3 half = to_light + to_eye;
    const Float inverse_length = InverseRoot(Dot(half, half) + Set(1e-30f));
    const Float cosine = hn::Max(Dot(normal, half) * inverse_length, Zero());
    const Float highlight = Pow(cosine, shininess);
    color = Fma(Set(local.specular),
                hn::IfThenElseZero(facing > Zero(), highlight), color);
  }
  return color * strength;
}

HWY_INLINE Color ClampColor(Color c) {
  return {Clamp(c.x, 0, 1), Clamp(c.y, 0, 1), Clamp(c.z, 0, 1)};
}

// Which lights a drawing pass has.
enum class Pass {
  kAll,         // all lights: what the mirror shows, and transparent geoms
  kShadowless,  // emission and the lights without shadow
  kOneLight,    // one light with shadow
};

// The colour that OpenGL gives a corner: the sum of a pass, clamped. `to_eye`
// is the unit direction from there to the eye.
HWY_INLINE Color CornerColor(const LocalScene& scene, Pass pass, int light,
                             Vec3 point, Vec3 normal, Vec3 to_eye) {
  if (pass == Pass::kOneLight) {
    return ClampColor(Shine(scene.lights[static_cast<size_t>(light)],
                            scene.shininess, point, normal, to_eye));
  }
  Color color = Set(scene.base);
  for (size_t k = 0; k < static_cast<size_t>(scene.num_lights); ++k) {
    const LocalLight& local = scene.lights[k];
    if (pass == Pass::kShadowless && local.light->casts_shadow) continue;
    color = color + Shine(local, scene.shininess, point, normal, to_eye);
  }
  return ClampColor(color);
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
