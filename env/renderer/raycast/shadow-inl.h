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

// The primitives that may stand between a light and one receiver.
struct Casters {
  const Light* light = nullptr;
  std::vector<const Primitive*> primitives;
};

// Whether the ball around `caster` can reach between the light and the ball
// around `receiver`. Cones are taken for cylinders: never false by mistake.
inline bool MayShade(const Light& light, const Primitive& caster,
                     const Primitive& receiver) {
  const auto dot = [](const Float3& a, const Float3& b) {
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
  };
  const auto sub = [](const Float3& a, const Float3& b) {
    return Float3{a[0] - b[0], a[1] - b[1], a[2] - b[2]};
  };
  // axis: unit, from the light to the receiver
  Float3 axis = light.direction;
  const Float3 to_receiver = sub(receiver.position, light.position);
  if (!light.is_directional) {
    const float length = std::sqrt(dot(to_receiver, to_receiver));
    if (length < 1e-6f) return true;
    for (size_t i = 0; i < 3; ++i) axis[i] = to_receiver[i] / length;
  }
  const Float3 between = sub(caster.position, receiver.position);
  const float ahead = dot(between, axis);
  const float reach = caster.bounding_radius + receiver.bounding_radius;
  if (ahead > reach) return false;
  const float aside2 = dot(between, between) - ahead * ahead;
  return aside2 <= reach * reach;
}

inline void FindCasters(const Snapshot& snapshot, const Light& light,
                        const Primitive& receiver, Casters& casters) {
  casters.light = &light;
  casters.primitives.clear();
  for (const Primitive& caster : snapshot.primitives) {
    // convex shapes do not shade themselves where they face the light
    if (&caster == &receiver || !caster.casts_shadow) continue;
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
  Mask is_open = is_mapped;
  for (const Primitive* caster : casters.primitives) {
    if (hn::AllFalse(kFloat, is_open)) break;
    const Vec3 o = RotateBack(caster->rotation, origin - Set(caster->position));
    const Vec3 d = RotateBack(caster->rotation, direction);
    const Float t = HitAny(*caster, o, d);
    const Mask is_between =
        hn::And(t<Set(0.9999f), t * depth> Set(light.shadow_near));
    is_open = hn::AndNot(is_between, is_open);
  }
  return hn::Or(is_open, hn::Not(is_mapped));
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
