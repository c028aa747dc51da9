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

// The primitives that may stand between a light and one receiver.
struct Casters {
  const Light* light = nullptr;
  std::vector<const Primitive*> primitives;
};

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
inline void FindCasters(const Snapshot& snapshot, const Light& light,
                        const Primitive& primitive, const Ball& receiver,
                        Casters& casters) {
  casters.light = &light;
  casters.primitives.clear();
  for (const Primitive& caster : snapshot.primitives) {
    // convex shapes do not shade themselves where they face the light
    if (&caster == &primitive && caster.shape != Shape::kTriangles) continue;
    if (!caster.casts_shadow) continue;
    if (!MayShade(light, caster, receiver)) continue;
    casters.primitives.push_back(&caster);
  }
}

// Whether `light` reaches world points `point`. What lies outside the light's
// shadow map is lit.
HWY_INLINE Mask IsLit(const Casters& casters, Vec3 point) {
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
  const Vec3 origin = point - direction;
  const Float first =
      Set(light.shadow_near) / hn::Max(depth, Set(light.shadow_near));
  const Float last = Set(kShadowEnd);
  Mask is_open = is_mapped;
  for (const Primitive* caster : casters.primitives) {
    if (hn::AllFalse(kFloat, is_open)) break;
    const Vec3 o = RotateBack(caster->rotation, origin - Set(caster->position));
    const Vec3 d = RotateBack(caster->rotation, direction);
    if (caster->shape == Shape::kTriangles) {
      const TriangleHits hits = FindTriangles<true>(
          *caster->triangles, o, d, first, If(is_open, last, Set(-1.0f)));
      is_open = hn::And(
          is_open, hn::RebindMask(kFloat, hn::Lt(hits.index, hn::Zero(kInt))));
      continue;
    }
    const Float t = HitAny(*caster, o, d);
    const Mask is_between = hn::And(t<last, t> first);
    is_open = hn::AndNot(is_between, is_open);
  }
  return hn::Or(is_open, hn::Not(is_mapped));
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
