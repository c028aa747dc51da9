// Intersections of rays with shapes. Included once per instruction set.
#include <type_traits>

#include "env/renderer/raycast/frame.h"
#include "env/renderer/raycast/triangle_hits-inl.h"

#if defined(REPLICANT_RAYCAST_INTERSECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_INTERSECT_INL_H_
#undef REPLICANT_RAYCAST_INTERSECT_INL_H_
#else
#define REPLICANT_RAYCAST_INTERSECT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// Origin of rays o + t d in a primitive's unit coordinates, and inverses that
// depend on it alone; see Nearness().
struct Origin {
  Vec3 at;
  Vec3 inverse;
};

// As above, for all rays of a picture or of a lamp.
struct SharedOrigin {
  Float3 at{}, inverse{};
};
HWY_INLINE Origin Set(const SharedOrigin& origin) {
  return {Set(origin.at), Set(origin.inverse)};
}

template <Shape kShape>
HWY_INLINE Origin MakeOrigin(const Primitive& p, Vec3 o) {
  const Float half = Set(p.unit_half_length);
  Vec3 inverse = {Zero(), Zero(), Zero()};
  if constexpr (kShape == Shape::kPlane) {
    inverse.x = SafeInverse(Zero() - o.z);
  }
  if constexpr (kShape == Shape::kEllipsoid) {
    inverse.x = SafeInverse(Dot(o, o) - Set(1.0f));
  }
  if constexpr (kShape == Shape::kCapsule || kShape == Shape::kCylinder) {
    const Float side2 = Fma(o.y, o.y, Fma(o.x, o.x, Set(-1.0f)));
    inverse.x = SafeInverse(side2);
    const Float above = o.z - half;
    const Float below = o.z + half;
    if constexpr (kShape == Shape::kCapsule) {
      inverse.y = SafeInverse(Fma(above, above, side2));
      inverse.z = SafeInverse(Fma(below, below, side2));
    } else {
      inverse.y = SafeInverse(Zero() - above);
      inverse.z = SafeInverse(Zero() - below);
    }
  }
  if constexpr (kShape == Shape::kBox) {
    const auto face = [](Float v) HWY_ATTR {
      return hn::IfThenElseZero(hn::Abs(v) > Set(1.0f),
                                SafeInverse(hn::CopySign(Set(1.0f), v) - v));
    };
    inverse = {face(o.x), face(o.y), face(o.z)};
  }
  return {o, inverse};
}

// Nearness() gives 1 / t of the point where the ray o + t d enters a shape from
// outside: positive for t > 0; zero or negative if the ray misses the shape or
// enters it before its origin. (OpenGL also compares inverse depths.) With
// |o + t d| = 1 written as a t^2 + 2 b t + c = 0 it is
//
//   1 / t = (-b + sqrt(b^2 - a c)) / c,
//
// where c depends on the origin alone, so that no division per ray is needed.
// The discriminant comes from the moment o x d, as a - (o x d)^2: unlike b^2 -
// a c it stays exact when the ray starts hundreds of radii away.

//
// Several rays are computed together to hide latencies, and one test covers the
// hits of all.
template <size_t kCount>
using Floats = std::array<Float, kCount>;
template <size_t kCount>
using Vec3s = std::array<Vec3, kCount>;

// Whether no lane of any mask is set.
template <size_t kCount>
HWY_INLINE bool IsNone(const std::array<Mask, kCount>& masks) {
  Mask any = masks[0];
  for (size_t k = 1; k < kCount; ++k) any = hn::Or(any, masks[k]);
  return hn::AllFalse(kFloat, any);
}

template <size_t kCount>
HWY_INLINE Floats<kCount> BallNearness(const Vec3s<kCount>& o,
                                       const Floats<kCount>& inverse,
                                       const Vec3s<kCount>& d) {
  Floats<kCount> discriminant, nearness;
  std::array<Mask, kCount> hits;
  for (size_t k = 0; k < kCount; ++k) {
    const Vec3 moment = Cross(o[k], d[k]);
    discriminant[k] =
        NegFma(moment.z, moment.z,
               NegFma(moment.y, moment.y,
                      NegFma(moment.x, moment.x, Dot(d[k], d[k]))));
    hits[k] = discriminant[k] >= Zero();
    nearness[k] = Zero();
  }
  if (IsNone(hits)) return nearness;
  for (size_t k = 0; k < kCount; ++k) {
    const Float root = Root(hn::Max(discriminant[k], Zero()));
    nearness[k] =
        hn::IfThenElseZero(hits[k], (root - Dot(o[k], d[k])) * inverse[k]);
  }
  return nearness;
}

// A capsule or cylinder: the infinite tube of radius 1 about z, and beyond its
// ends the caps.
template <Shape kShape, size_t kCount>
HWY_INLINE Floats<kCount> RoundNearness(const Primitive& p, const Origin& o,
                                        const Vec3s<kCount>& d) {
  Floats<kCount> discriminant, nearness;
  std::array<Mask, kCount> hits;
  for (size_t k = 0; k < kCount; ++k) {
    const Float moment = NegFma(o.at.y, d[k].x, o.at.x * d[k].y);
    const Float a = Fma(d[k].y, d[k].y, d[k].x * d[k].x);
    discriminant[k] = NegFma(moment, moment, a);
    hits[k] = discriminant[k] >= Zero();
    nearness[k] = Zero();
  }
  if (IsNone(hits)) return nearness;
  const Float half = Set(p.unit_half_length);
  Floats<kCount> end;
  std::array<Mask, kCount> is_past;
  for (size_t k = 0; k < kCount; ++k) {
    const Float root = Root(hn::Max(discriminant[k], Zero()));
    const Float along = Fma(o.at.y, d[k].y, o.at.x * d[k].x);
    const Float side = (root - along) * o.inverse.x;
    // height of the entry times its nearness
    const Float z = Fma(o.at.z, side, d[k].z);
    is_past[k] = hn::And(hits[k], hn::Abs(z) > half * hn::Abs(side));
    end[k] = hn::CopySign(half, hn::Xor(z, side));
    nearness[k] = hn::IfThenElseZero(hits[k], side);
  }
  if (IsNone(is_past)) return nearness;
  Floats<kCount> inverse, at_end;
  for (size_t k = 0; k < kCount; ++k) {
    inverse[k] = If(end[k] < Zero(), o.inverse.z, o.inverse.y);
  }
  if constexpr (kShape == Shape::kCapsule) {
    Vec3s<kCount> from;
    for (size_t k = 0; k < kCount; ++k) {
      from[k] = {o.at.x, o.at.y, o.at.z - end[k]};
    }
    at_end = BallNearness(from, inverse, d);
  } else {
    for (size_t k = 0; k < kCount; ++k) {
      const Float disk = d[k].z * inverse[k];
      const Float x = Fma(o.at.x, disk, d[k].x);
      const Float y = Fma(o.at.y, disk, d[k].y);
      at_end[k] = hn::IfThenElseZero(Fma(y, y, x * x) <= disk * disk, disk);
    }
  }
  for (size_t k = 0; k < kCount; ++k) {
    nearness[k] = If(is_past[k], at_end[k], nearness[k]);
  }
  return nearness;
}

// The ray enters the cube from -1 to 1 at the last face plane that it crosses
// among those that face its origin, unless it has left the cube by then.
HWY_INLINE Float BoxNearness(const Origin& o, Vec3 d) {
  const auto is_turned = [](Float inverse)
                             HWY_ATTR { return inverse != Zero(); };
  const auto face = [&](Float inverse, Float direction) HWY_ATTR {
    return If(is_turned(inverse), inverse * direction, Set(kMiss));
  };
  const Float nearness =
      hn::Min(hn::Min(face(o.inverse.x, d.x), face(o.inverse.y, d.y)),
              face(o.inverse.z, d.z));
  // only the opposite face of a face towards the origin can have been passed; a
  // comparison with itself would leave holes along the edges
  const auto is_inside = [&](Float at, Float inverse,
                             Float direction) HWY_ATTR {
    const Float place = Fma(at, nearness, direction);
    const Float across = place * hn::CopySign(Set(1.0f), Zero() - at);
    return If(is_turned(inverse), across, hn::Abs(place)) <= nearness;
  };
  const Mask is_hit = hn::And(hn::And(is_inside(o.at.x, o.inverse.x, d.x),
                                      is_inside(o.at.y, o.inverse.y, d.y)),
                              is_inside(o.at.z, o.inverse.z, d.z));
  return hn::IfThenElseZero(is_hit, nearness);
}

HWY_INLINE Float PlaneNearness(const Primitive& p, const Origin& o, Vec3 d) {
  const Float nearness = d.z * o.inverse.x;
  const Float x = hn::Abs(Fma(o.at.x, nearness, d.x));
  const Float y = hn::Abs(Fma(o.at.y, nearness, d.y));
  const Mask is_inside = hn::And(x <= nearness * Set(p.grid[0].half),
                                 y <= nearness * Set(p.grid[1].half));
  return hn::IfThenElseZero(is_inside, nearness);
}

template <Shape kShape, size_t kCount>
HWY_INLINE Floats<kCount> Nearness(const Primitive& p, const Origin& o,
                                   const Vec3s<kCount>& d) {
  if constexpr (kShape == Shape::kCapsule || kShape == Shape::kCylinder) {
    return RoundNearness<kShape>(p, o, d);
  } else if constexpr (kShape == Shape::kEllipsoid) {
    Vec3s<kCount> from;
    Floats<kCount> inverse;
    for (size_t k = 0; k < kCount; ++k) {
      from[k] = o.at;
      inverse[k] = o.inverse.x;
    }
    return BallNearness(from, inverse, d);
  } else {
    Floats<kCount> nearness;
    for (size_t k = 0; k < kCount; ++k) {
      if constexpr (kShape == Shape::kPlane) {
        nearness[k] = PlaneNearness(p, o, d[k]);
      } else if constexpr (kShape == Shape::kBox) {
        nearness[k] = BoxNearness(o, d[k]);
      } else {
        const Float t =
            FindTriangles<false>(*p.triangles, o.at, d[k], Zero(), Set(kMiss))
                .t;
        nearness[k] = hn::IfThenElseZero(t < Set(kMiss), Set(1.0f) / t);
      }
    }
    return nearness;
  }
}

template <Shape kShape>
using ShapeConstant = std::integral_constant<Shape, kShape>;

// Calls `visit` with the shape as a constant.
template <typename Visit>
HWY_INLINE auto VisitShape(Shape shape, const Visit& visit) {
  switch (shape) {
    case Shape::kPlane:
      return visit(ShapeConstant<Shape::kPlane>());
    case Shape::kEllipsoid:
      return visit(ShapeConstant<Shape::kEllipsoid>());
    case Shape::kCapsule:
      return visit(ShapeConstant<Shape::kCapsule>());
    case Shape::kCylinder:
      return visit(ShapeConstant<Shape::kCylinder>());
    case Shape::kBox:
      return visit(ShapeConstant<Shape::kBox>());
    case Shape::kTriangles:
      break;
  }
  return visit(ShapeConstant<Shape::kTriangles>());
}

// A ray start + t direction for each lane.
struct RayLanes {
  Vec3 start, direction;
};

// The fan of rays through the picture (see Rays), in coordinates of a
// primitive.
struct RayFan {
  Float3 base, per_x, per_y;
  bool are_parallel;
  Float3 forward;

  // At picture coordinates (x, y).
  HWY_INLINE Vec3 At(Float x, Float y) const {
    return Fma(Set(per_x), x, Row(y));
  }
  // The part of it that depends on y.
  HWY_INLINE Vec3 Row(Float y) const { return Fma(Set(per_y), y, Set(base)); }
  HWY_INLINE RayLanes RaysFrom(const Float3& origin, Float x, Float y) const {
    const Vec3 fan = At(x, y);
    if (are_parallel) return {Set(origin) + fan, Set(forward)};
    return {Set(origin), fan};
  }
};
struct LocalRays : RayFan {
  Float3 origin;
  HWY_INLINE RayLanes Through(Float x, Float y) const {
    return RaysFrom(origin, x, y);
  }
};
struct UnitRays : RayFan {
  SharedOrigin origin;
  HWY_INLINE RayLanes Through(Float x, Float y) const {
    return RaysFrom(origin.at, x, y);
  }
};

// Nearness() of parallel rays, which share no origin.
template <Shape kShape, size_t kCount>
HWY_NOINLINE HWY_ATTR Floats<kCount> ParallelNearness(
    const Primitive& p, const UnitRays& rays, const Vec3s<kCount>& fan) {
  Floats<kCount> nearness;
  for (size_t k = 0; k < kCount; ++k) {
    const Origin origin = MakeOrigin<kShape>(p, Set(rays.origin.at) + fan[k]);
    nearness[k] = Nearness<kShape>(p, origin, Vec3s<1>{Set(rays.forward)})[0];
  }
  return nearness;
}

// The fan in the world, at picture coordinates (x, y).
HWY_INLINE Vec3 FanAt(const Rays& rays, Float x, Float y) {
  return Fma(Set(rays.per_x), x, Fma(Set(rays.per_y), y, Set(rays.base)));
}

inline Float3 RotateBack(const Float9& m, const Float3& v) {
  return {m[0] * v[0] + m[3] * v[1] + m[6] * v[2],
          m[1] * v[0] + m[4] * v[1] + m[7] * v[2],
          m[2] * v[0] + m[5] * v[1] + m[8] * v[2]};
}

inline Float3 ToLocal(const Primitive& p, const Float3& point) {
  return RotateBack(p.rotation,
                    Float3{point[0] - p.position[0], point[1] - p.position[1],
                           point[2] - p.position[2]});
}

inline Float3 Turn(const Float9& m, const Float3& v) {
  return {m[0] * v[0] + m[1] * v[1] + m[2] * v[2],
          m[3] * v[0] + m[4] * v[1] + m[5] * v[2],
          m[6] * v[0] + m[7] * v[1] + m[8] * v[2]};
}

inline HWY_ATTR SharedOrigin ShareOrigin(const Primitive& p,
                                         const Float3& point) {
  SharedOrigin shared;
  shared.at =
      Turn(p.world_to_unit, {point[0] - p.position[0], point[1] - p.position[1],
                             point[2] - p.position[2]});
  const Vec3 inverse = VisitShape(p.shape, [&](auto shape) HWY_ATTR {
    return MakeOrigin<shape()>(p, Set(shared.at)).inverse;
  });
  shared.inverse = {hn::GetLane(inverse.x), hn::GetLane(inverse.y),
                    hn::GetLane(inverse.z)};
  return shared;
}

inline UnitRays ToUnit(const Primitive& p, const Rays& rays) {
  return {{Turn(p.world_to_unit, rays.base), Turn(p.world_to_unit, rays.per_x),
           Turn(p.world_to_unit, rays.per_y), rays.are_parallel,
           Turn(p.world_to_unit, rays.forward)},
          ShareOrigin(p, rays.origin)};
}

inline LocalRays ToLocal(const Primitive& p, const Rays& rays) {
  return {
      {RotateBack(p.rotation, rays.base), RotateBack(p.rotation, rays.per_x),
       RotateBack(p.rotation, rays.per_y), rays.are_parallel,
       RotateBack(p.rotation, rays.forward)},
      ToLocal(p, rays.origin)};
}

// Parameter where rays that start `from` the sky's middle leave its cylinder;
// 0 if they pass by.
HWY_INLINE Float LeaveSky(const Snapshot& snapshot, Vec3 from, Vec3 d) {
  const Float distance = Set(snapshot.sky_distance);
  const Float a = Fma(d.y, d.y, d.x * d.x) + Set(1e-12f);
  const Float b = Fma(d.y, from.y, d.x * from.x);
  const Float c =
      Fma(from.y, from.y, NegFma(distance, distance, from.x * from.x));
  const Float discriminant = NegFma(a, c, b * b);
  const Float root = hn::Sqrt(hn::Max(discriminant, Zero()));
  const Float turned = SafeInverse(d.z);
  const Float cap = hn::CopySign(distance, d.z);
  const Float enter =
      hn::Max((Zero() - b - root) / a, (Zero() - cap - from.z) * turned);
  const Float leave = hn::Min((root - b) / a, (cap - from.z) * turned);
  return hn::IfThenElseZero(hn::And(discriminant >= Zero(), enter <= leave),
                            leave);
}

// Depth of the sky on parallel rays that start `from` its middle; 0 where it is
// not drawn.
HWY_INLINE Float ParallelSkyDepth(const Snapshot& snapshot, Vec3 from) {
  const Float depth = LeaveSky(snapshot, from, Set(snapshot.rays.forward));
  return hn::IfThenElseZero(hn::And(depth > Set(snapshot.near_depth),
                                    depth < Set(snapshot.far_depth)),
                            depth);
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
