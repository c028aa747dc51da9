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

// The first triangle, one lane after the other: neighbouring rays part ways in
// the tree.
HWY_INLINE Float HitTriangles(const Primitive& p, Vec3 o, Vec3 d, Int* index) {
  constexpr size_t kMaxLanes = 64;
  HWY_ALIGN std::array<float, kMaxLanes> ox, oy, oz, dx, dy, dz, t;
  HWY_ALIGN std::array<int32_t, kMaxLanes> indices;
  hn::Store(o.x, kFloat, ox.data());
  hn::Store(o.y, kFloat, oy.data());
  hn::Store(o.z, kFloat, oz.data());
  hn::Store(d.x, kFloat, dx.data());
  hn::Store(d.y, kFloat, dy.data());
  hn::Store(d.z, kFloat, dz.data());
  for (size_t i = 0; i < NumLanes(); ++i) {
    const TriangleSet::Hit hit =
        p.triangles->FirstHit({ox[i], oy[i], oz[i]}, {dx[i], dy[i], dz[i]});
    t[i] = hit.t;
    indices[i] = hit.index;
  }
  *index = hn::Load(kInt, indices.data());
  return hn::Load(kFloat, t.data());
}

HWY_INLINE Float HitTriangles(const Primitive& p, Vec3 o, Vec3 d) {
  Int index;
  return HitTriangles(p, o, d, &index);
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
