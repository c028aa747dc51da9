// Where rays enter the shapes. Included once per instruction set.
#include "env/renderer/raycast/frame.h"
#include "env/renderer/raycast/vector-inl.h"

#if defined(REPLICANT_RAYCAST_INTERSECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_INTERSECT_INL_H_
#undef REPLICANT_RAYCAST_INTERSECT_INL_H_
#else
#define REPLICANT_RAYCAST_INTERSECT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// All functions take a ray o + t d in the shape's local coordinates and give
// the t at which it enters the shape from outside, of either sign, or kMiss.
// Discriminants come from the moment o x d: unlike b^2 - a c they stay exact
// when the ray starts hundreds of radii away.

// 1 / v, large for v = 0.
HWY_INLINE Float SafeInverse(Float v) {
  const Float tiny = Set(1e-20f);
  return Set(1.0f) / If(hn::Abs(v) < tiny, tiny, v);
}

HWY_INLINE Float HitUnitSphere(Vec3 o, Vec3 d) {
  const Float a = Dot(d, d);
  const Vec3 moment = Cross(o, d);
  const Float discriminant = a - Dot(moment, moment);
  // roots and quotients cost more than all the rest
  if (hn::AllTrue(kFloat, discriminant < Zero())) return Set(kMiss);
  const Float root = hn::Sqrt(hn::Max(discriminant, Zero()));
  const Float t = (Zero() - Dot(o, d) - root) / a;
  return If(discriminant < Zero(), Set(kMiss), t);
}

HWY_INLINE Float HitEllipsoid(const Primitive& p, Vec3 o, Vec3 d) {
  const Vec3 scale =
      Set({1.0f / p.size[0], 1.0f / p.size[1], 1.0f / p.size[2]});
  return HitUnitSphere(o * scale, d * scale);
}

// Where the ray enters the endless cylinder of radius 1 about z; `*missed`
// where it does not. Parallel to z the entry is far up or down.
HWY_INLINE Float HitUnitTube(Vec3 o, Vec3 d, Mask* missed) {
  const Float a = hn::Max(d.x * d.x + d.y * d.y, Set(1e-20f));
  const Float moment = o.x * d.y - o.y * d.x;
  const Float discriminant = a - moment * moment;
  *missed = discriminant < Zero();
  if (hn::AllTrue(kFloat, *missed)) return Set(kMiss);
  const Float root = hn::Sqrt(hn::Max(discriminant, Zero()));
  return (Zero() - (o.x * d.x + o.y * d.y) - root) / a;
}

HWY_INLINE Float HitCapsule(const Primitive& p, Vec3 o, Vec3 d) {
  const Float scale = Set(1.0f / p.size[0]);
  const Float half = Set(p.size[2]) * scale;
  const Vec3 unit_o = o * scale;
  const Vec3 unit_d = d * scale;
  Mask missed;
  const Float side = HitUnitTube(unit_o, unit_d, &missed);
  if (hn::AllTrue(kFloat, missed)) return Set(kMiss);
  // past an end the ball at that end decides
  const Float z = unit_o.z + side * unit_d.z;
  const Mask is_on_side = hn::Abs(z) <= half;
  const Float center = hn::CopySign(half, z);
  const Float ball =
      HitUnitSphere({unit_o.x, unit_o.y, unit_o.z - center}, unit_d);
  return If(missed, Set(kMiss), If(is_on_side, side, ball));
}

HWY_INLINE Float HitCylinder(const Primitive& p, Vec3 o, Vec3 d) {
  const Vec3 scale = Set({1.0f / p.size[0], 1.0f / p.size[1], 1.0f});
  const Float half = Set(p.size[2]);
  const Vec3 unit_o = o * scale;
  const Vec3 unit_d = d * scale;
  Mask missed;
  const Float side = HitUnitTube(unit_o, unit_d, &missed);
  if (hn::AllTrue(kFloat, missed)) return Set(kMiss);
  const Float z = unit_o.z + side * unit_d.z;
  const Mask is_on_side = hn::Abs(z) <= half;
  // past an end the disk at that end decides
  const Float end = hn::CopySign(half, z);
  const Float disk = (end - unit_o.z) * SafeInverse(unit_d.z);
  const Float x = unit_o.x + disk * unit_d.x;
  const Float y = unit_o.y + disk * unit_d.y;
  const Mask is_on_disk = x * x + y * y <= Set(1.0f);
  const Float at_end = If(is_on_disk, disk, Set(kMiss));
  return If(missed, Set(kMiss), If(is_on_side, side, at_end));
}

HWY_INLINE Float HitBox(const Primitive& p, Vec3 o, Vec3 d) {
  const Vec3 inverse = {SafeInverse(d.x), SafeInverse(d.y), SafeInverse(d.z)};
  const Vec3 reach = {hn::Abs(inverse.x) * Set(p.size[0]),
                      hn::Abs(inverse.y) * Set(p.size[1]),
                      hn::Abs(inverse.z) * Set(p.size[2])};
  const Vec3 center = o * inverse;
  const Vec3 enter = Set({0, 0, 0}) - center - reach;
  const Vec3 leave = reach - center;
  const Float first = hn::Max(hn::Max(enter.x, enter.y), enter.z);
  const Float last = hn::Min(hn::Min(leave.x, leave.y), leave.z);
  return If(first <= last, first, Set(kMiss));
}

HWY_INLINE Float HitPlane(const Primitive& p, Vec3 o, Vec3 d) {
  const Float t = (Zero() - o.z) * SafeInverse(d.z);
  const Mask is_inside = hn::And(hn::Abs(o.x + t * d.x) <= Set(p.grid[0].half),
                                 hn::Abs(o.y + t * d.y) <= Set(p.grid[1].half));
  return If(is_inside, t, Set(kMiss));
}

// Triangles that rays hit: parameter and number, kMiss and -1 without a hit.
struct TriangleHits {
  Float t;
  Int index;
};

// Where rays o + t d meet the fronts of triangle `i`; `*is_hit` where they do.
// Source: Moeller and Trumbore, Fast, Minimum Storage Ray/Triangle
// Intersection, Journal of Graphics Tools 2(1), 1997.
HWY_INLINE Float MeetTriangle(const TriangleSet& set, size_t i, Vec3 o, Vec3 d,
                              Mask* is_hit) {
  const auto load = [&](size_t k) HWY_ATTR {
    return Vec3{Set(set.corner(k, 0)[i]), Set(set.corner(k, 1)[i]),
                Set(set.corner(k, 2)[i])};
  };
  const Vec3 corner = load(0);
  const Vec3 edge1 = load(1) - corner;
  const Vec3 edge2 = load(2) - corner;
  const Vec3 p = Cross(d, edge2);
  const Float determinant = Dot(edge1, p);
  const Vec3 v = o - corner;
  const Float a = Dot(v, p);
  const Vec3 q = Cross(v, edge1);
  const Float b = Dot(d, q);
  // not seen from behind or edge on
  const Mask is_front = determinant > Set(1e-30f);
  const Mask is_inside =
      hn::And(hn::And(a >= Zero(), b >= Zero()), a + b <= determinant);
  *is_hit = hn::And(is_front, is_inside);
  return Dot(edge2, q) / If(is_front, determinant, Set(1.0f));
}

// The first triangles with t_min < t < t_max; with kAny some triangle. Lanes
// with t_max < t_min take no part.
//
// All lanes go through the tree together, which neighbouring rays mostly would
// anyway. A lane's result does not depend on the others nor on the order of the
// visits: a hit counts from where its ray enters the leaf's box on, so that no
// box that was passed over, being entered behind the best hit, could have held
// a better one; of equal hits the one of the lower number stays.
template <bool kAny>
HWY_ATTR TriangleHits FindTriangles(const TriangleSet& set, Vec3 o, Vec3 d,
                                    Float t_min, Float t_max) {
  const auto& nodes = set.nodes();
  Float best = t_max;
  Int index = hn::Set(kInt, -1);
  if (nodes.empty()) return {Set(kMiss), index};
  const Vec3 inverse = {SafeInverse(d.x), SafeInverse(d.y), SafeInverse(d.z)};
  // which child of a node comes first for the first ray
  const std::array<bool, 3> is_backward = {
      hn::GetLane(d.x) < 0, hn::GetLane(d.y) < 0, hn::GetLane(d.z) < 0};
  // a tree of 2^31 triangles is 32 deep
  std::array<int32_t, 64> stack;
  size_t depth = 0;
  stack[depth++] = 0;
  while (depth > 0) {
    const int32_t at = stack[--depth];
    const TriangleSet::Node& node = nodes[static_cast<size_t>(at)];
    const Vec3 low = (Set(node.low) - o) * inverse;
    const Vec3 high = (Set(node.high) - o) * inverse;
    const Float enter = hn::Max(
        hn::Max(hn::Max(t_min, hn::Min(low.x, high.x)), hn::Min(low.y, high.y)),
        hn::Min(low.z, high.z));
    const Float leave =
        hn::Min(hn::Min(hn::Max(low.x, high.x), hn::Max(low.y, high.y)),
                hn::Max(low.z, high.z));
    // room for rounding: no edge of a triangle may be lost
    const Mask meets = hn::And(enter <= leave * Set(1.00001f), enter <= best);
    if (hn::AllFalse(kFloat, meets)) continue;
    if (node.count == 0) {
      const bool is_far_first = is_backward[static_cast<size_t>(node.axis)];
      stack[depth++] = is_far_first ? at + 1 : node.first;
      stack[depth++] = is_far_first ? node.first : at + 1;
      continue;
    }
    for (int32_t i = node.first; i < node.first + node.count; ++i) {
      Mask is_hit;
      const Float t = hn::Max(
          MeetTriangle(set, static_cast<size_t>(i), o, d, &is_hit), enter);
      const Int number = hn::Set(kInt, i);
      const Mask is_lower = hn::RebindMask(kFloat, hn::Lt(number, index));
      const Mask is_better =
          hn::Or(t < best, hn::And(IsEqual(t, best), is_lower));
      const Mask is_found =
          hn::And(hn::And(meets, is_hit), hn::And(t > t_min, is_better));
      index = If(is_found, number, index);
      // who looks for any is done
      best = If(is_found, kAny ? Set(-kMiss) : t, best);
    }
  }
  const Mask is_found =
      hn::RebindMask(kFloat, hn::Gt(index, hn::Set(kInt, -1)));
  return {If(is_found, best, Set(kMiss)), index};
}

HWY_INLINE Float HitTriangles(const Primitive& p, Vec3 o, Vec3 d) {
  return FindTriangles<false>(*p.triangles, o, d, Zero(), Set(kMiss)).t;
}

template <Shape kShape>
HWY_INLINE Float Hit(const Primitive& p, Vec3 o, Vec3 d) {
  if constexpr (kShape == Shape::kPlane) return HitPlane(p, o, d);
  if constexpr (kShape == Shape::kEllipsoid) return HitEllipsoid(p, o, d);
  if constexpr (kShape == Shape::kCapsule) return HitCapsule(p, o, d);
  if constexpr (kShape == Shape::kCylinder) return HitCylinder(p, o, d);
  if constexpr (kShape == Shape::kBox) return HitBox(p, o, d);
  if constexpr (kShape == Shape::kTriangles) return HitTriangles(p, o, d);
}

HWY_INLINE Float HitAny(const Primitive& p, Vec3 o, Vec3 d) {
  switch (p.shape) {
    case Shape::kPlane:
      return HitPlane(p, o, d);
    case Shape::kEllipsoid:
      return HitEllipsoid(p, o, d);
    case Shape::kCapsule:
      return HitCapsule(p, o, d);
    case Shape::kCylinder:
      return HitCylinder(p, o, d);
    case Shape::kBox:
      return HitBox(p, o, d);
    case Shape::kTriangles:
      return HitTriangles(p, o, d);
  }
  return Set(kMiss);
}

// Rays through the picture in the local coordinates of a primitive.
struct LocalRays {
  Float3 origin, base, per_x, per_y;

  // Direction through picture coordinates (x, y).
  HWY_INLINE Vec3 Direction(Float x, Float y) const {
    return Set(base) + Set(per_x) * x + Set(per_y) * y;
  }
};

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

inline LocalRays ToLocal(const Primitive& p, const Rays& rays) {
  return {ToLocal(p, rays.origin), RotateBack(p.rotation, rays.base),
          RotateBack(p.rotation, rays.per_x),
          RotateBack(p.rotation, rays.per_y)};
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
