// The triangle of MuJoCo's display lists that a hit lies on. Included once per
// instruction set.
#include "env/renderer/raycast/intersect-inl.h"
#include "env/renderer/raycast/tables.h"

#if defined(REPLICANT_RAYCAST_FACET_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_FACET_INL_H_
#undef REPLICANT_RAYCAST_FACET_INL_H_
#else
#define REPLICANT_RAYCAST_FACET_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// OpenGL lights the corners of triangles and blends the colours between them,
// so the look of a curved geom depends on MuJoCo's division into triangles: by
// default 28 slices around the axis and 16 stacks along it. No geom is divided
// in advance here; the triangle follows from the point where the ray hits the
// exact shape.
//
// All display lists consist of cells with these corners, in cell coordinates
// (u, v) in [0, 1]:
//
//   D (0,1) ---- C (1,1)
//   |                 |
//   A (0,0) ---- B (1,0)
//
// A cell whose corners are listed A, B, C, D is drawn as the triangles A B D
// and B C D; one listed D, C, B, A as D C A and C B A; a cell at a pole has C =
// D and is A B D alone.
struct Triangle {
  Vec3 corner[3];  // local
  Vec3 normal[3];  // unit
  // texture coordinates, if the primitive's texture takes them from corners
  Float s[3], t[3];
};

// Selects one of two values along u and v for each corner of a triangle.
struct CornerChoice {
  Mask u0, v0;  // corner 0 is C where set, else A
  Mask v1;      // corner 1 is C where set, else B
  Mask u2, v2;  // corner 2: B where u2, else D
};

HWY_INLINE CornerChoice ChooseCorners(Float u, Float v, Mask is_reversed,
                                      Mask is_pole) {
  const Mask is_second_abcd = u + v >= Set(1.0f);
  const Mask is_second_dcba = u >= v;
  const Mask is_plain = hn::Or(is_pole, hn::Not(is_reversed));
  const Mask takes_c =
      hn::And(hn::And(is_plain, hn::Not(is_pole)), is_second_abcd);
  const Mask takes_b = hn::AndNot(is_plain, is_second_dcba);
  return {takes_c, takes_c, hn::Not(is_plain), takes_b, hn::Not(takes_b)};
}

// A row of corners around the axis z: radius and height, of the points and of
// the normals (of any length unless IsRound()).
struct Row {
  Float radius, z, normal_radius, normal_z;
};
HWY_INLINE Row If(Mask m, const Row& yes, const Row& no) {
  return {If(m, yes.radius, no.radius), If(m, yes.z, no.z),
          If(m, yes.normal_radius, no.normal_radius),
          If(m, yes.normal_z, no.normal_z)};
}

// Whether a shape that is round about z has the normals of a ball or a tube.
inline bool IsRound(const Primitive& p) {
  return p.size[0] == p.size[1] &&
         (p.shape != Shape::kEllipsoid || p.size[0] == p.size[2]);
}

HWY_INLINE void SetCorner(const Primitive& p, const Row& row, Float cos_azimuth,
                          Float sin_azimuth, int i, Triangle* triangle) {
  const Float radius_x = row.radius * Set(p.size[0]);
  const Float radius_y = row.radius * Set(p.size[1]);
  triangle->corner[i] = {radius_x * cos_azimuth, radius_y * sin_azimuth, row.z};
  const Vec3 normal = {
      row.normal_radius * cos_azimuth,
      row.normal_radius * sin_azimuth * Set(p.size[0] / p.size[1]),
      row.normal_z};
  triangle->normal[i] = IsRound(p) ? normal : Normalized(normal);
}

// The cell of a shape that is round about z: the two rows and the place in it.
struct RoundCell {
  Row low, high;
  Float v;
  Mask is_reversed, is_pole, is_disk;
  // texture coordinate t of the rows
  Float low_t, high_t;
};

// Cells of a half sphere of unit radius; `z` and `radius` are the hit's.
HWY_INLINE RoundCell SphereCell(const Tables& tables, const Primitive& p,
                                Float radius, Float z, Float center) {
  const auto rows = static_cast<float>(tables.num_rows());
  constexpr float kHalfPi = 1.57079633f;
  const Float scaled = Atan2(hn::Abs(z), radius) * Set(rows / kHalfPi);
  const Float row = Clamp(hn::Floor(scaled), 0.0f, rows - 1.0f);
  const Int index = ToInt(row);
  const Int next = index + hn::Set(kInt, 1);
  RoundCell cell;
  cell.v = scaled - row;
  cell.is_reversed = z < Zero();
  cell.is_pole = row >= Set(rows - 1.0f);
  cell.is_disk = Set(0.0f) > Set(1.0f);
  // of a capsule, each half has the whole texture
  const Float per_row = Set((p.shape == Shape::kCapsule ? 1.0f : 0.5f) / rows);
  const Float equator = p.shape == Shape::kCapsule
                            ? If(z < Zero(), Zero(), Set(1.0f))
                            : Set(0.5f);
  const Float step = hn::CopySign(per_row, z);
  cell.low_t = equator - step * row;
  cell.high_t = equator - step * (row + Set(1.0f));
  const float size_z = p.shape == Shape::kCapsule ? p.size[0] : p.size[2];
  const Float flatness = Set(p.size[0] / size_z);
  const Float sign = hn::CopySign(Set(1.0f), z);
  const auto make = [&](Int i) HWY_ATTR {
    const auto size = static_cast<size_t>(tables.num_rows()) + 1;
    const Float c = Lookup(tables.cos_elevation.data(), size, i);
    const Float s = Lookup(tables.sin_elevation.data(), size, i) * sign;
    return Row{c, Fma(s, Set(size_z), center), c, s * flatness};
  };
  cell.low = make(index);
  cell.high = make(next);
  return cell;
}

// Cells of the wall of a cylinder of unit radius and half height `half`.
HWY_INLINE RoundCell TubeCell(const Tables& tables, Float half, Float z) {
  const auto rows = static_cast<float>(tables.num_stacks);
  const Float height = (half + half) * Set(1.0f / rows);
  const Float scaled = (z + half) / height;
  const Float row = Clamp(hn::Floor(scaled), 0.0f, rows - 1.0f);
  RoundCell cell;
  cell.v = scaled - row;
  cell.is_reversed = Set(0.0f) > Set(1.0f);
  cell.is_pole = cell.is_reversed;
  cell.is_disk = cell.is_reversed;
  cell.low_t = Set(1.0f) - row * Set(1.0f / rows);
  cell.high_t = cell.low_t - Set(1.0f / rows);
  const Float bottom = row * height - half;
  cell.low = {Set(1.0f), bottom, Set(1.0f), Zero()};
  cell.high = {Set(1.0f), bottom + height, Set(1.0f), Zero()};
  return cell;
}

// Cells of the disk that closes a cylinder; rings count from the outside.
HWY_INLINE RoundCell DiskCell(const Tables& tables, Float half, Float radius,
                              Float z) {
  const auto rings = static_cast<float>(tables.num_rows());
  const Float scaled = radius * Set(rings);
  const Float ring = Clamp(hn::Floor(scaled), 0.0f, rings - 1.0f);
  const Float sign = hn::CopySign(Set(1.0f), z);
  const Float inner = ring * Set(1.0f / rings);
  RoundCell cell;
  cell.v = Set(1.0f) - (scaled - ring);
  cell.is_reversed = z < Zero();
  cell.is_pole = ring < Set(0.5f);
  cell.is_disk = Set(0.0f) < Set(1.0f);
  cell.low_t = cell.high_t = Zero();
  cell.low = {inner + Set(1.0f / rings), half * sign, Zero(), sign};
  cell.high = {inner, half * sign, Zero(), sign};
  return cell;
}

template <Shape kShape>
HWY_INLINE RoundCell FindRoundCell(const Tables& tables, const Primitive& p,
                                   Float radius, Float z) {
  if constexpr (kShape == Shape::kEllipsoid) {
    return SphereCell(tables, p, radius, z * Set(1.0f / p.size[2]), Zero());
  }
  const Float half = Set(p.size[2]);
  const Float above = hn::Abs(z) - half;
  Mask is_end;
  if constexpr (kShape == Shape::kCapsule) {
    is_end = above > Zero();
  } else {
    // up to rounding a hit lies in the plane of the disk or on the wall
    is_end = above + (Set(1.0f) - radius) * Set(p.size[0]) > Zero();
  }
  if (hn::AllFalse(kFloat, is_end)) return TubeCell(tables, half, z);
  RoundCell end;
  if constexpr (kShape == Shape::kCapsule) {
    // inside the caps' range of z the ball's own sign would be wrong
    const Float center = hn::CopySign(half, z);
    end = SphereCell(tables, p, radius, (z - center) * Set(1.0f / p.size[0]),
                     center);
  } else {
    end = DiskCell(tables, half, radius, z);
  }
  if (hn::AllTrue(kFloat, is_end)) return end;
  const RoundCell wall = TubeCell(tables, half, z);
  return {
      If(is_end, end.low, wall.low),     If(is_end, end.high, wall.high),
      If(is_end, end.v, wall.v),         hn::And(is_end, end.is_reversed),
      hn::And(is_end, end.is_pole),      hn::And(is_end, end.is_disk),
      If(is_end, end.low_t, wall.low_t), If(is_end, end.high_t, wall.high_t)};
}

// Texture coordinates of a corner of a round shape: a map of longitude and
// latitude, and from above on disks.
HWY_INLINE void SetCornerCoordinates(const Primitive& p, const RoundCell& cell,
                                     Float longitude, Float t, int i,
                                     Triangle* triangle) {
  const Float half = Set(0.5f);
  const Vec3 at = triangle->corner[i];
  triangle->s[i] =
      If(cell.is_disk, Fma(at.x, Set(0.5f / p.size[0]), half), longitude);
  triangle->t[i] = If(cell.is_disk, Fma(at.y, Set(0.5f / p.size[1]), half), t);
}

template <Shape kShape>
HWY_INLINE Triangle FindRoundTriangle(const Tables& tables, const Primitive& p,
                                      Vec3 hit) {
  const Float x = hit.x * Set(1.0f / p.size[0]);
  const Float y = hit.y * Set(1.0f / p.size[1]);
  const Float radius = hn::Sqrt(x * x + y * y);
  const RoundCell cell = FindRoundCell<kShape>(tables, p, radius, hit.z);

  const auto slices = static_cast<float>(tables.num_slices);
  constexpr float kTwoPi = 6.28318531f;
  const Float scaled = Atan2(y, x) * Set(slices / kTwoPi);
  const Float slice = Clamp(hn::Floor(scaled), 0.0f, slices - 1.0f);
  const Int index = ToInt(slice);
  const Int next = index + hn::Set(kInt, 1);
  const auto size = static_cast<size_t>(tables.num_slices) + 1;
  const Float cos_low = Lookup(tables.cos_azimuth.data(), size, index);
  const Float sin_low = Lookup(tables.sin_azimuth.data(), size, index);
  const Float cos_high = Lookup(tables.cos_azimuth.data(), size, next);
  const Float sin_high = Lookup(tables.sin_azimuth.data(), size, next);

  const CornerChoice c =
      ChooseCorners(scaled - slice, cell.v, cell.is_reversed, cell.is_pole);
  Triangle triangle;
  SetCorner(p, If(c.v0, cell.high, cell.low), If(c.u0, cos_high, cos_low),
            If(c.u0, sin_high, sin_low), 0, &triangle);
  SetCorner(p, If(c.v1, cell.high, cell.low), cos_high, sin_high, 1, &triangle);
  SetCorner(p, If(c.v2, cell.high, cell.low), If(c.u2, cos_high, cos_low),
            If(c.u2, sin_high, sin_low), 2, &triangle);
  for (int i = 0; i < 3; ++i) triangle.s[i] = triangle.t[i] = Zero();
  if (!p.has_corner_coordinates) return triangle;
  const Float low = slice * Set(1.0f / slices);
  const Float high = (slice + Set(1.0f)) * Set(1.0f / slices);
  SetCornerCoordinates(p, cell, If(c.u0, high, low),
                       If(c.v0, cell.high_t, cell.low_t), 0, &triangle);
  SetCornerCoordinates(p, cell, high, If(c.v1, cell.high_t, cell.low_t), 1,
                       &triangle);
  SetCornerCoordinates(
      p, cell, If(cell.is_pole, (low + high) * Set(0.5f), If(c.u2, high, low)),
      If(c.v2, cell.high_t, cell.low_t), 2, &triangle);
  return triangle;
}

// A flat face: u and v are the other two axes in cyclic or anticyclic order.
HWY_INLINE Triangle FindBoxTriangle(const Tables& tables, const Primitive& p,
                                    Vec3 hit) {
  const Vec3 unit = {hit.x * Set(1.0f / p.size[0]),
                     hit.y * Set(1.0f / p.size[1]),
                     hit.z * Set(1.0f / p.size[2])};
  const Float ax = hn::Abs(unit.x);
  const Float ay = hn::Abs(unit.y);
  const Float az = hn::Abs(unit.z);
  const Mask is_x = hn::And(ax >= ay, ax >= az);
  const Mask is_y = hn::AndNot(is_x, ay >= az);
  const Float along = If(is_x, unit.x, If(is_y, unit.y, unit.z));
  const Float sign = hn::CopySign(Set(1.0f), along);
  // faces +z, +x and -y list their corners A B C D, the others D C B A
  const Mask is_reversed = (If(is_y, Zero() - sign, sign)) < Zero();

  const auto squares = static_cast<float>(tables.num_quads);
  const Float u = (If(is_x, unit.y, unit.x) + Set(1.0f)) * Set(0.5f * squares);
  const Float v = (If(hn::Or(is_x, is_y), unit.z, unit.y) + Set(1.0f)) *
                  Set(0.5f * squares);
  const Float iu = Clamp(hn::Floor(u), 0.0f, squares - 1.0f);
  const Float iv = Clamp(hn::Floor(v), 0.0f, squares - 1.0f);
  const Float step = Set(2.0f / squares);
  const Float u_low = iu * step - Set(1.0f);
  const Float v_low = iv * step - Set(1.0f);

  const CornerChoice c =
      ChooseCorners(u - iu, v - iv, is_reversed, Set(0.0f) > Set(1.0f));
  const Vec3 normal = {If(is_x, sign, Zero()), If(is_y, sign, Zero()),
                       If(hn::Or(is_x, is_y), Zero(), sign)};
  const auto place = [&](Float pu, Float pv) HWY_ATTR {
    return Vec3{If(is_x, sign, pu) * Set(p.size[0]),
                If(is_x, pu, If(is_y, sign, pv)) * Set(p.size[1]),
                If(hn::Or(is_x, is_y), pv, sign) * Set(p.size[2])};
  };
  const Float u_high = u_low + step;
  const Float v_high = v_low + step;
  Triangle triangle;
  const auto set = [&](int i, Float pu, Float pv) HWY_ATTR {
    triangle.corner[i] = place(pu, pv);
    triangle.normal[i] = normal;
    const Float half = Set(0.5f);
    triangle.s[i] = Fma(pu, half, half);
    triangle.t[i] = NegFma(pv, half, half);
  };
  set(0, If(c.u0, u_high, u_low), If(c.v0, v_high, v_low));
  set(1, u_high, If(c.v1, v_high, v_low));
  set(2, If(c.u2, u_high, u_low), If(c.v2, v_high, v_low));
  return triangle;
}

// The cell of a plane's grid along one side: index, its two lines and the
// inverse of its width.
struct GridCell {
  Int index;
  Float low, high, per_width;
};
HWY_INLINE GridCell FindGridCell(const PlaneGrid& grid, Float at) {
  const auto last = static_cast<float>(grid.num_cells - 1);
  const Float from_edge = at + Set(grid.half) - Set(grid.pad);
  // cell 0 is the border; cell k > 0 begins at pad + (k - 1) step
  const Float k =
      Clamp(hn::Floor(from_edge * Set(grid.per_step)) + Set(1.0f), 0.0f, last);
  const auto line = [&](Float i) HWY_ATTR {
    const Float inner =
        Set(-grid.half) + Set(grid.pad) + (i - Set(1.0f)) * Set(grid.step);
    return If(i <= Set(0.0f), Set(-grid.half), hn::Min(inner, Set(grid.half)));
  };
  const Mask is_border = hn::Or(k <= Zero(), k >= Set(last));
  return {ToInt(k), line(k), line(k + Set(1.0f)),
          If(is_border, Set(grid.per_pad), Set(grid.per_step))};
}

HWY_INLINE Triangle FindPlaneTriangle(const Primitive& p, Vec3 hit) {
  const GridCell x = FindGridCell(p.grid[0], hit.x);
  const GridCell y = FindGridCell(p.grid[1], hit.y);
  const Float u = (hit.x - x.low) * x.per_width;
  const Float v = (hit.y - y.low) * y.per_width;
  const Mask never = Set(0.0f) > Set(1.0f);
  const CornerChoice c = ChooseCorners(u, v, never, never);
  const Vec3 normal = {Zero(), Zero(), Set(1.0f)};
  return {{{If(c.u0, x.high, x.low), If(c.v0, y.high, y.low), Zero()},
           {x.high, If(c.v1, y.high, y.low), Zero()},
           {If(c.u2, x.high, x.low), If(c.v2, y.high, y.low), Zero()}},
          {normal, normal, normal},
          {},
          {}};
}

template <Shape kShape>
HWY_INLINE Triangle FindTriangle(const Tables& tables, const Primitive& p,
                                 Vec3 hit) {
  if constexpr (kShape == Shape::kPlane) {
    return FindPlaneTriangle(p, hit);
  } else if constexpr (kShape == Shape::kBox) {
    return FindBoxTriangle(tables, p, hit);
  } else {
    return FindRoundTriangle<kShape>(tables, p, hit);
  }
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
