// Whether a light reaches a point. Included once per instruction set.
#include "env/renderer/raycast/lighting-inl.h"

#if defined(REPLICANT_RAYCAST_SHADOW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_SHADOW_INL_H_
#undef REPLICANT_RAYCAST_SHADOW_INL_H_
#else
#define REPLICANT_RAYCAST_SHADOW_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// Casters beyond this part of the way from the light to a point are the point's
// own surface.
inline constexpr float kShadowEnd = 0.9999f;

// A light with shadow and the primitives that may stand between it and one
// receiver.
struct Casters {
  const Light* light = nullptr;
  // the spot light's place, for every primitive of the snapshot
  std::vector<SharedOrigin> origins;
  std::vector<const Primitive*> primitives;
};

// One per light with shadow.
inline std::vector<Casters> MakeCasters(const Snapshot& snapshot) {
  std::vector<Casters> all;
  for (const Light& light : snapshot.lights) {
    if (!light.casts_shadow) continue;
    Casters& casters = all.emplace_back();
    casters.light = &light;
    if (light.is_directional) continue;
    casters.origins.reserve(snapshot.primitives.size());
    for (const Primitive& p : snapshot.primitives) {
      casters.origins.push_back(ShareOrigin(p, light.position));
    }
  }
  return all;
}

// A ball that holds the points which may be shaded, in world coordinates.
struct Ball {
  Float3 center;
  float radius;
};

// Whether the ball around `caster` can reach between the light and `receiver`.
// Cones are taken for cylinders: never false by mistake.
inline bool MayShade(const Light& light, const Primitive& caster,
                     const Ball& receiver) {
  const auto dot = [](const Float3& a, const Float3& b) {
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
  };
  const auto sub = [](const Float3& a, const Float3& b) {
    return Float3{a[0] - b[0], a[1] - b[1], a[2] - b[2]};
  };
  // axis: unit, from the light to the receiver
  Float3 axis = light.direction;
  if (!light.is_directional) {
    const Float3 v = sub(receiver.center, light.position);
    const float length = std::sqrt(dot(v, v));
    if (length < 1e-6f) return true;
    for (size_t i = 0; i < 3; ++i) axis[i] = v[i] / length;
  }
  const Float3 between = sub(caster.position, receiver.center);
  const float ahead = dot(between, axis);
  const float reach = caster.bounding_radius + receiver.radius;
  if (ahead > reach) return false;
  const float aside2 = dot(between, between) - ahead * ahead;
  return aside2 <= reach * reach;
}

// Lists what may shade points of `primitive` that lie in `receiver`.
inline void FindCasters(const Snapshot& snapshot, const Primitive& primitive,
                        const Ball& receiver, Casters& casters) {
  casters.primitives.clear();
  for (const Primitive& caster : snapshot.primitives) {
    // convex shapes do not shade themselves where they face the light
    if (&caster == &primitive && caster.shape != Shape::kTriangles) continue;
    if (!caster.casts_shadow) continue;
    if (!MayShade(*casters.light, caster, receiver)) continue;
    casters.primitives.push_back(&caster);
  }
}

// Whether `light` reaches world points `point`. What lies outside the light's
// shadow map is lit.
HWY_INLINE Mask IsLit(const Snapshot& snapshot, const Casters& casters,
                      Vec3 point) {
  const Light& light = *casters.light;
  const Vec3 v = point - Set(light.position);
  const Float depth = Dot(v, Set(light.direction));
  const Float reach = light.is_directional ? Set(light.shadow_half)
                                           : depth * Set(light.shadow_half);
  const Mask is_mapped =
      hn::And(depth > Set(light.shadow_near),
              hn::And(hn::Abs(Dot(v, Set(light.shadow_x))) <= reach,
                      hn::Abs(Dot(v, Set(light.shadow_y))) <= reach));

  // a ray from the light (at t = 0, or from its plane) to the point (t = 1)
  const Vec3 direction =
      light.is_directional ? Set(light.direction) * depth : v;
  const Float first =
      Set(light.shadow_near) / hn::Max(depth, Set(light.shadow_near));
  Mask is_open = is_mapped;
  for (const Primitive* caster : casters.primitives) {
    if (hn::AllFalse(kFloat, is_open)) break;
    const Primitive& p = *caster;
    const Vec3 d = Rotate(p.world_to_unit, direction);
    const Mask is_between = VisitShape(p.shape, [&](auto shape) HWY_ATTR {
      Origin origin;
      if (light.is_directional) {
        origin = MakeOrigin<shape()>(
            p, Rotate(p.world_to_unit, point - direction - Set(p.position)));
      } else {
        origin = Set(casters.origins[static_cast<size_t>(
            caster - snapshot.primitives.data())]);
      }
      if constexpr (shape() == Shape::kTriangles) {
        const TriangleHits hits =
            FindTriangles<true>(*p.triangles, origin.at, d, first,
                                If(is_open, Set(kShadowEnd), Set(-1.0f)));
        return hn::RebindMask(kFloat, hn::Gt(hits.index, hn::Set(kInt, -1)));
      } else {
        const Float nearness = Nearness<shape()>(p, origin, d);
        return hn::And(nearness > Set(1.0f / kShadowEnd),
                       nearness * first < Set(1.0f));
      }
    });
    is_open = hn::AndNot(is_between, is_open);
  }
  return hn::Or(is_open, hn::Not(is_mapped));
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
