// Whether a light reaches a point. Included once per instruction set.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "env/renderer/raycast/lighting-inl.h"

#if defined(REPLICANT_RAYCAST_SHADOW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_SHADOW_INL_H_
#undef REPLICANT_RAYCAST_SHADOW_INL_H_
#else
#define REPLICANT_RAYCAST_SHADOW_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// Casters beyond this fraction of the way from the light to a point are the
// point's own surface.
inline constexpr float kShadowEnd = 0.9999f;

// A rectangle of a plane, in the plane's coordinates.
struct Footprint {
  float x_low = -kMiss, x_high = kMiss, y_low = -kMiss, y_high = kMiss;

  void Include(const Footprint& other) {
    x_low = std::min(x_low, other.x_low);
    x_high = std::max(x_high, other.x_high);
    y_low = std::min(y_low, other.y_low);
    y_high = std::max(y_high, other.y_high);
  }
  bool Overlaps(const Footprint& other) const {
    return x_low <= other.x_high && x_high >= other.x_low &&
           y_low <= other.y_high && y_high >= other.y_low;
  }
};

inline constexpr Footprint kNowhere = {kMiss, -kMiss, kMiss, -kMiss};

// A light with shadow and the primitives that may cast shadows on one
// receiver.
struct Casters {
  const Light* light = nullptr;
  // the spot light's position in unit coordinates of every primitive
  std::vector<SharedOrigin> origins;
  // whether MayCut() of every primitive
  std::vector<uint8_t> are_cut;
  std::vector<const Primitive*> primitives;
  // where their shadows can fall if the receiver is a plane
  std::vector<Footprint> footprints;
  // bounds of all footprints
  Footprint around = kNowhere;
};

// Whether the plane where the light begins to shine may cut `caster`.
inline bool MayCut(const Light& light, const Primitive& caster) {
  Float3 v;
  for (size_t i = 0; i < 3; ++i) v[i] = caster.position[i] - light.position[i];
  const Float3& d = light.direction;
  const float depth = v[0] * d[0] + v[1] * d[1] + v[2] * d[2];
  const float reach = caster.bounding_radius + light.shadow_near;
  if (std::abs(depth) > reach) return false;
  return light.is_directional ||
         v[0] * v[0] + v[1] * v[1] + v[2] * v[2] < 4 * reach * reach;
}

// One per light with shadow.
inline std::vector<Casters> MakeCasters(const Snapshot& snapshot) {
  std::vector<Casters> all;
  for (const Light& light : snapshot.lights) {
    if (!light.casts_shadow) continue;
    Casters& casters = all.emplace_back();
    casters.light = &light;
    casters.are_cut.reserve(snapshot.primitives.size());
    for (const Primitive& p : snapshot.primitives) {
      casters.are_cut.push_back(MayCut(light, p) ? 1 : 0);
    }
    if (light.is_directional) continue;
    casters.origins.reserve(snapshot.primitives.size());
    for (const Primitive& p : snapshot.primitives) {
      casters.origins.push_back(ShareOrigin(p, light.position));
    }
  }
  return all;
}

// A ball around the points to be shaded, in world coordinates.
struct Ball {
  Float3 center;
  float radius;
};

// Whether the ball around `caster` can reach between the light and `receiver`.
// Cones are treated as cylinders; never returns a wrong false.
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

// A rectangle of `plane` that contains the shadow of `caster`.
inline Footprint FindFootprint(const Light& light, const Primitive& caster,
                               const Primitive& plane) {
  // half axes of the box around the caster, in the plane's coordinates
  std::array<Float3, 3> axes;
  for (size_t i = 0; i < 3; ++i) {
    const float half = caster.half_box[i];
    axes[i] = RotateBack(plane.rotation, Float3{caster.rotation[i] * half,
                                                caster.rotation[3 + i] * half,
                                                caster.rotation[6 + i] * half});
  }
  const Float3 middle = ToLocal(plane, caster.position);
  const Float3 lamp = ToLocal(plane, light.position);
  const Float3 down = RotateBack(plane.rotation, light.direction);
  Footprint print = kNowhere;
  for (unsigned corner = 0; corner < 8; ++corner) {
    Float3 at = middle;
    for (size_t i = 0; i < 3; ++i) {
      const float sign = (corner >> i & 1) != 0 ? 1.0f : -1.0f;
      for (size_t k = 0; k < 3; ++k) at[k] += sign * axes[i][k];
    }
    // along the light's ray through the corner to the plane
    const Float3 ray =
        light.is_directional
            ? down
            : Float3{at[0] - lamp[0], at[1] - lamp[1], at[2] - lamp[2]};
    const float start = light.is_directional ? at[2] : lamp[2];
    const float t = -start / ray[2];
    // rays from behind the lamp, or nearly parallel to the plane
    if (!(std::abs(t) < 1e4f) || (!light.is_directional && t <= 0)) return {};
    const Float3& from = light.is_directional ? at : lamp;
    print.x_low = std::min(print.x_low, from[0] + ray[0] * t);
    print.x_high = std::max(print.x_high, from[0] + ray[0] * t);
    print.y_low = std::min(print.y_low, from[1] + ray[1] * t);
    print.y_high = std::max(print.y_high, from[1] + ray[1] * t);
  }
  const float margin =
      1e-4f + 1e-3f * (print.x_high - print.x_low + print.y_high - print.y_low);
  return {print.x_low - margin, print.x_high + margin, print.y_low - margin,
          print.y_high + margin};
}

// Lists casters that may shade points of `primitive` inside `receiver`.
inline void FindCasters(const Snapshot& snapshot, const Primitive& primitive,
                        const Ball& receiver, Casters& casters) {
  casters.primitives.clear();
  casters.footprints.clear();
  casters.around = {};
  for (const Primitive& caster : snapshot.primitives) {
    // convex shapes do not shade themselves where they face the light
    if (&caster == &primitive && caster.shape != Shape::kTriangles) continue;
    if (!caster.casts_shadow) continue;
    if (!MayShade(*casters.light, caster, receiver)) continue;
    casters.primitives.push_back(&caster);
    casters.footprints.emplace_back();
  }
}

// Where the rays o + t d leave a convex shape: lanes with first < t <
// kShadowEnd. Seen from the rays' ends, at t = 1, they enter it there.
// Rarely needed.
template <Shape kShape>
HWY_NOINLINE HWY_ATTR Mask IsLeft(const Primitive& p, Vec3 o, Vec3 d,
                                  Float first) {
  const Origin end = MakeOrigin<kShape>(p, o + d);
  const Float nearness = Nearness<kShape>(
      p, end, Vec3s<1>{{Zero() - d.x, Zero() - d.y, Zero() - d.z}})[0];
  return hn::And(nearness * (Set(1.0f) - first) > Set(1.0f),
                 nearness * Set(1.0f - kShadowEnd) < Set(1.0f));
}

// Whether the light reaches the world points `point`, for lanes in `wanted`.
// Points outside the light's shadow map are lit. `may_shade(footprint)` tells
// whether the shadow of a caster must be tested.
template <typename MayShade>
HWY_INLINE Mask IsLit(const Snapshot& snapshot, const Casters& casters,
                      Vec3 point, Mask wanted, const MayShade& may_shade) {
  if (casters.primitives.empty() || !may_shade(casters.around)) return wanted;
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
  Mask is_open = hn::And(is_mapped, wanted);
  for (size_t i = 0; i < casters.primitives.size(); ++i) {
    if (hn::AllFalse(kFloat, is_open)) break;
    if (!may_shade(casters.footprints[i])) continue;
    const Primitive* caster = casters.primitives[i];
    const Primitive& p = *caster;
    const auto index = static_cast<size_t>(caster - snapshot.primitives.data());
    const Vec3 d = Rotate(p.world_to_unit, direction);
    const Mask is_between = VisitShape(p.shape, [&](auto shape) HWY_ATTR {
      Origin origin;
      if (light.is_directional) {
        origin = MakeOrigin<shape()>(
            p, Rotate(p.world_to_unit, point - direction - Set(p.position)));
      } else {
        origin = Set(casters.origins[index]);
      }
      if constexpr (shape() == Shape::kTriangles) {
        const TriangleHits hits =
            FindTriangles<true>(*p.triangles, origin.at, d, first,
                                If(is_open, Set(kShadowEnd), Set(-1.0f)));
        return hn::RebindMask(kFloat, hn::Gt(hits.index, hn::Set(kInt, -1)));
      } else {
        const Float nearness = Nearness<shape()>(p, origin, Vec3s<1>{d})[0];
        const Mask is_entered = hn::And(nearness > Set(1.0f / kShadowEnd),
                                        nearness * first < Set(1.0f));
        // a plane has the same shadow from either side
        if constexpr (shape() == Shape::kPlane) return is_entered;
        if (casters.are_cut[index] == 0) return is_entered;
        // back faces cast shadows, too
        return hn::Or(is_entered, IsLeft<shape()>(p, origin.at, d, first));
      }
    });
    is_open = hn::AndNot(is_between, is_open);
  }
  return hn::And(wanted, hn::Or(is_open, hn::Not(is_mapped)));
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
