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

// Rounds a colour to 8 bits, as the frame buffer does after each pass.
struct Bytes {
  Int r, g, b;
};
HWY_INLINE Int ToByte(Float v) {
  return ToInt(Clamp(v, 0, 1) * Set(255.0f) + Set(0.5f));
}
HWY_INLINE Bytes ToBytes(Color c) {
  return {ToByte(c.x), ToByte(c.y), ToByte(c.z)};
}
HWY_INLINE Int Pack(Bytes c) {
  return hn::Or(c.r, hn::Or(hn::ShiftLeft<kChannelBits>(c.g),
                            hn::ShiftLeft<2 * kChannelBits>(c.b)));
}

// What is left of a colour at some depth in the fog. `is_added`: to another
// pass, which has the fog's own colour.
HWY_INLINE Color Fogged(const Fog& fog, Float depth, bool is_added, Color c) {
  const Float share =
      Clamp((Set(fog.end) - depth) * Set(fog.per_depth), 0.0f, 1.0f);
  if (is_added) return c * share;
  return Fma(c - Set(fog.color), share, Set(fog.color));
}

// A light in the local coordinates of a primitive, its colours times the
// primitive's material.
struct LocalLight {
  const Light* light;
  Float3 position, direction;
  Float3 ambient, diffuse, specular;
  bool has_ambient, has_specular;
};

// The surface and all lights that shine on it, in local coordinates.
struct LocalScene {
  Float3 eye, forward;
  const Fog* fog;  // null without it
  float shininess;
  // ambient part: emission and global ambient light
  Float3 base;
  std::array<LocalLight, 8> lights;
  int num_lights;
};

// Of a primitive that is not lit only the passes of lights with shadow have
// lights.
// `reflectance` darkens the material's own colour, not its highlights, as
// MuJoCo does for reflections.
inline LocalScene MakeLocalScene(const Snapshot& snapshot, const Primitive& p,
                                 const Rays& rays, float reflectance) {
  LocalScene scene;
  scene.eye = ToLocal(p, rays.origin);
  scene.forward = RotateBack(p.rotation, rays.forward);
  scene.fog = snapshot.fog.is_on ? &snapshot.fog : nullptr;
  scene.shininess = p.shininess;
  Float3 rgb{};
  for (size_t i = 0; i < 3; ++i) {
    rgb[i] = p.rgba[i] * reflectance;
    scene.base[i] = (p.emission + snapshot.global_ambient[i]) * rgb[i];
  }
  scene.num_lights = static_cast<int>(snapshot.lights.size());
  if (p.is_unlit) {
    // the pass of a light with shadow adds the colour where it shines
    static constexpr Light kAnyLight{.is_directional = true};
    scene.base = rgb;
    for (size_t k = 0; k < snapshot.lights.size(); ++k) {
      scene.lights[k] =
          LocalLight{&kAnyLight, {}, {}, rgb, {}, {}, false, false};
    }
    scene.num_lights = 0;
    return scene;
  }
  for (size_t k = 0; k < snapshot.lights.size(); ++k) {
    const Light& light = snapshot.lights[k];
    LocalLight& local = scene.lights[k];
    local.light = &light;
    local.position = ToLocal(p, light.position);
    local.direction = RotateBack(p.rotation, light.direction);
    local.has_ambient = local.has_specular = false;
    for (size_t i = 0; i < 3; ++i) {
      local.ambient[i] = light.ambient[i] * rgb[i];
      local.diffuse[i] = light.diffuse[i] * rgb[i];
      local.specular[i] = light.specular[i] * p.specular;
      local.has_ambient |= local.ambient[i] > 0;
      local.has_specular |= local.specular[i] > 0;
    }
  }
  return scene;
}

// A point of a surface with its unit normal and the unit direction to the eye.
struct SurfacePoint {
  Vec3 place, normal, to_eye;
};

// Adds the light that some points of a surface receive from one source:
//
//   a * s * (ambient + diffuse * max(0, n.l) +
//            specular * max(0, n.h)^shininess)
//
// with a the attenuation, s the spot light's cone, l towards the light and h
// half way between l and the eye (OpenGL 2.1 specification, 2.14.1, with a
// local viewer). Points are computed together, step by step, to hide
// latencies.
template <size_t kCount>
HWY_INLINE void AddLight(const LocalLight& local, float shininess,
                         const std::array<SurfacePoint, kCount>& points,
                         std::array<Color, kCount>& colors) {
  const Light& light = *local.light;
  std::array<Vec3, kCount> to_light;
  std::array<Float, kCount> strength;
  for (size_t k = 0; k < kCount; ++k) {
    strength[k] = Set(1.0f);
    if (light.is_directional) {
      to_light[k] = Set(Float3{-local.direction[0], -local.direction[1],
                               -local.direction[2]});
      continue;
    }
    const Vec3 v = Set(local.position) - points[k].place;
    const Float distance2 = Dot(v, v) + Set(1e-30f);
    const Float inverse_distance = InverseRoot(distance2);
    to_light[k] = v * inverse_distance;
    const Float3& a = light.attenuation;
    if (a[1] != 0 || a[2] != 0) {
      const Float distance = distance2 * inverse_distance;
      strength[k] = Set(1.0f) / Fma(Fma(Set(a[2]), distance, Set(a[1])),
                                    distance, Set(a[0]));
    } else if (a[0] != 1.0f) {
      strength[k] = Set(1.0f / a[0]);
    }
  }
  if (!light.is_directional && light.cos_cutoff > -1.5f) {
    std::array<Float, kCount> falloff;
    for (size_t k = 0; k < kCount; ++k) {
      const Float cone = Zero() - Dot(to_light[k], Set(local.direction));
      strength[k] =
          hn::IfThenElseZero(cone >= Set(light.cos_cutoff), strength[k]);
      falloff[k] = hn::Max(cone, Zero());
    }
    RaiseAll(light.exponent, falloff);
    for (size_t k = 0; k < kCount; ++k) strength[k] = strength[k] * falloff[k];
  }
  std::array<Float, kCount> facing;
  std::array<Color, kCount> shine;
  for (size_t k = 0; k < kCount; ++k) {
    facing[k] = hn::Max(Dot(points[k].normal, to_light[k]), Zero());
    shine[k] = Fma(Set(local.diffuse), facing[k], Set(local.ambient));
  }
  if (local.has_specular) {
    std::array<Float, kCount> highlight;
    for (size_t k = 0; k < kCount; ++k) {
      const Vec3 half = to_light[k] + points[k].to_eye;
      const Float inverse_length = InverseRoot(Dot(half, half) + Set(1e-30f));
      highlight[k] =
          hn::Max(Dot(points[k].normal, half) * inverse_length, Zero());
    }
    RaiseAll(shininess, highlight);
    for (size_t k = 0; k < kCount; ++k) {
      shine[k] =
          Fma(Set(local.specular),
              hn::IfThenElseZero(facing[k] > Zero(), highlight[k]), shine[k]);
    }
  }
  for (size_t k = 0; k < kCount; ++k) {
    colors[k] = Fma(shine[k], strength[k], colors[k]);
  }
}

HWY_INLINE Color ClampColor(Color c) {
  return {Clamp(c.x, 0, 1), Clamp(c.y, 0, 1), Clamp(c.z, 0, 1)};
}

// The lights of a drawing pass.
enum class Pass {
  kAll,         // all lights: reflections and transparent geoms
  kShadowless,  // emission and the lights without shadow
  kOneLight,    // one light with shadow
};

// The colours that OpenGL gives corners: the sums of a pass, clamped.
template <size_t kCount>
HWY_INLINE std::array<Color, kCount> CornerColors(
    const LocalScene& scene, Pass pass, int light,
    const std::array<SurfacePoint, kCount>& corners) {
  std::array<Color, kCount> colors;
  for (Color& color : colors) {
    color = Set(pass == Pass::kOneLight ? Float3{} : scene.base);
  }
  if (pass == Pass::kOneLight) {
    AddLight(scene.lights[static_cast<size_t>(light)], scene.shininess, corners,
             colors);
  } else {
    for (size_t k = 0; k < static_cast<size_t>(scene.num_lights); ++k) {
      const LocalLight& local = scene.lights[k];
      if (pass == Pass::kShadowless && local.light->casts_shadow) continue;
      AddLight(local, scene.shininess, corners, colors);
    }
  }
  for (Color& color : colors) color = ClampColor(color);
  return colors;
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
