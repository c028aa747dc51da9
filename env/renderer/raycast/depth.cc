#include "env/renderer/raycast/depth.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "env/renderer/raycast/depth.cc"
#include <hwy/foreach_target.h>

#include "env/renderer/raycast/intersect-inl.h"

#ifndef REPLICANT_RAYCAST_DEPTH_TYPES_
#define REPLICANT_RAYCAST_DEPTH_TYPES_
namespace replicant::env::raycast {

// MuJoCo's display lists of curved shapes, in unit coordinates: radius 1, and
// tubes from z = -1 to 1.
struct RoundShapes {
  TriangleSet ball;
  TriangleSet upper, lower;  // halves of the ball
  TriangleSet tube;          // open
  TriangleSet cylinder;      // a tube with its two disks
};

// One picture in the making; rows of `stride` pixels, whole vectors.
struct DepthPass {
  const Snapshot* snapshot;
  const RoundShapes* shapes;
  size_t stride;
  float* nearness;
  int32_t* primitive;
};

}  // namespace replicant::env::raycast
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// Writes primitive `index` where it is nearest; at equal depth a later one
// wins, as with OpenGL's GL_GEQUAL. `look(x, y)` gives 1 / depth of the first
// hit of the rays through picture coordinates (x, y), 0 or less without one.
template <typename Look>
HWY_ATTR void CoverPixels(const DepthPass& pass, int index, const Look& look) {
  const ScreenRect& rect =
      pass.snapshot->primitives[static_cast<size_t>(index)].rect;
  const auto lanes = static_cast<int>(NumLanes());
  const Float nearest = Set(1.0f / pass.snapshot->near_depth);
  const Int id = hn::Set(kInt, index);
  for (int y = rect.y0; y < rect.y1; ++y) {
    const Float row = Set(static_cast<float>(y) + 0.5f);
    for (int x = rect.x0 - rect.x0 % lanes; x < rect.x1; x += lanes) {
      const size_t at =
          static_cast<size_t>(y) * pass.stride + static_cast<size_t>(x);
      const Float column = ToFloat(CountFrom(x)) + Set(0.5f);
      const Float nearness = look(column, row);
      const Float old = hn::LoadU(kFloat, pass.nearness + at);
      const Mask is_nearer = hn::And(nearness >= old, nearness <= nearest);
      hn::StoreU(If(is_nearer, nearness, old), kFloat, pass.nearness + at);
      int32_t* const id_at = pass.primitive + at;
      hn::StoreU(If(is_nearer, id, hn::LoadU(kInt, id_at)), kInt, id_at);
    }
  }
}

// Parameter of the first hit of a ray behind `t_min` with `set`, which is
// stretched by `stretch` along z and then moved up by `shift`.
HWY_INLINE Float Meet(const TriangleSet& set, const RayLanes& ray, float t_min,
                      float stretch, float shift) {
  const Float shrink = Set(1.0f / stretch);
  const Vec3 o = {ray.start.x, ray.start.y,
                  (ray.start.z - Set(shift)) * shrink};
  const Vec3 d = {ray.direction.x, ray.direction.y, ray.direction.z * shrink};
  return FindTriangles<false>(set, o, d, Set(t_min), Set(kMiss)).t;
}

HWY_INLINE Float ToNearness(Float t) {
  return hn::IfThenElseZero(t < Set(kMiss), Set(1.0f) / t);
}

template <Shape kShape>
HWY_ATTR void CoverShape(const DepthPass& pass, int index) {
  const Primitive& p = pass.snapshot->primitives[static_cast<size_t>(index)];
  const UnitRays rays = ToUnit(p, pass.snapshot->rays);
  const Origin origin = Set(rays.origin);
  const RoundShapes& shapes = *pass.shapes;
  const float half = std::max(p.unit_half_length, 1e-10f);
  // what lies before the near plane hides nothing
  const float near = pass.snapshot->near_depth;
  CoverPixels(pass, index, [&](Float x, Float y) HWY_ATTR {
    const RayLanes ray = rays.Through(x, y);
    if constexpr (kShape == Shape::kEllipsoid) {
      return ToNearness(Meet(shapes.ball, ray, near, 1, 0));
    } else if constexpr (kShape == Shape::kCylinder) {
      return ToNearness(Meet(shapes.cylinder, ray, near, half, 0));
    } else if constexpr (kShape == Shape::kCapsule) {
      const Float tube = Meet(shapes.tube, ray, near, half, 0);
      const Float top = Meet(shapes.upper, ray, near, 1, half);
      const Float bottom = Meet(shapes.lower, ray, near, 1, -half);
      return ToNearness(hn::Min(tube, hn::Min(top, bottom)));
    } else if constexpr (kShape == Shape::kTriangles) {
      return ToNearness(Meet(*p.triangles, ray, near, 1, 0));
    } else {
      const Vec3s<1> fan{rays.At(x, y)};
      return (rays.are_parallel ? ParallelNearness<kShape>(p, rays, fan)
                                : Nearness<kShape>(p, origin, fan))[0];
    }
  });
}

HWY_ATTR void CoverAll(const DepthPass& pass,
                       std::span<const uint8_t> is_shown) {
  for (size_t k = 0; k < pass.snapshot->primitives.size(); ++k) {
    const Primitive& p = pass.snapshot->primitives[k];
    if (is_shown[k] == 0 || p.rect.empty()) continue;
    VisitShape(p.shape, [&](auto shape) HWY_ATTR {
      CoverShape<shape()>(pass, static_cast<int>(k));
    });
  }
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replicant::env::raycast {
namespace {

HWY_EXPORT(CoverAll);

using Point = TriangleSet::Point;
using Triangles = std::vector<TriangleSet::Triangle>;

// Adds a flat cell with its corners counter-clockwise from outside. No normals:
// nothing is lit.
void AddCell(const Point& a, const Point& b, const Point& c, const Point& d,
             Triangles& triangles) {
  triangles.push_back({{a, b, c}, {}});
  triangles.push_back({{a, c, d}, {}});
}

// Cells of half a ball; `sign` is 1 for the upper one.
void AddHalfBall(const Tables& tables, float sign, Triangles& triangles) {
  const auto corner = [&](size_t slice, size_t row) {
    const float radius = tables.cos_elevation[row];
    return Point{radius * tables.cos_azimuth[slice],
                 radius * tables.sin_azimuth[slice],
                 sign * tables.sin_elevation[row]};
  };
  for (size_t row = 0; row < static_cast<size_t>(tables.num_rows()); ++row) {
    const size_t low = sign > 0 ? row : row + 1;
    const size_t high = sign > 0 ? row + 1 : row;
    for (size_t k = 0; k < static_cast<size_t>(tables.num_slices); ++k) {
      AddCell(corner(k, low), corner(k + 1, low), corner(k + 1, high),
              corner(k, high), triangles);
    }
  }
}

void AddTube(const Tables& tables, bool has_disks, Triangles& triangles) {
  const auto corner = [&](size_t slice, float z) {
    return Point{tables.cos_azimuth[slice], tables.sin_azimuth[slice], z};
  };
  for (size_t k = 0; k < static_cast<size_t>(tables.num_slices); ++k) {
    AddCell(corner(k, -1), corner(k + 1, -1), corner(k + 1, 1), corner(k, 1),
            triangles);
    if (!has_disks) continue;
    triangles.push_back({{Point{0, 0, 1}, corner(k, 1), corner(k + 1, 1)}, {}});
    triangles.push_back(
        {{Point{0, 0, -1}, corner(k + 1, -1), corner(k, -1)}, {}});
  }
}

RoundShapes MakeRoundShapes(const Tables& tables) {
  Triangles upper, lower, tube, cylinder;
  AddHalfBall(tables, 1, upper);
  AddHalfBall(tables, -1, lower);
  AddTube(tables, /*has_disks=*/false, tube);
  AddTube(tables, /*has_disks=*/true, cylinder);
  Triangles ball = upper;
  ball.insert(ball.end(), lower.begin(), lower.end());
  return {TriangleSet(ball), TriangleSet(upper), TriangleSet(lower),
          TriangleSet(tube), TriangleSet(cylinder)};
}

// Shared by all renderers of the process with the same visual quality.
const RoundShapes& ShapesOf(const Tables& tables) {
  static Mutex mutex;
  static std::map<std::pair<int, int>, std::unique_ptr<RoundShapes>> all;
  const MutexLock lock(mutex);
  auto& shapes = all[{tables.num_slices, tables.num_stacks}];
  if (!shapes) shapes = std::make_unique<RoundShapes>(MakeRoundShapes(tables));
  return *shapes;
}

}  // namespace

void FindNearest(const Snapshot& snapshot, const Tables& tables,
                 std::span<const uint8_t> is_shown, std::span<float> nearness,
                 std::span<int32_t> primitive) {
  const auto width = static_cast<size_t>(snapshot.width);
  const auto height = static_cast<size_t>(snapshot.height);
  const size_t stride =
      (width + kLargestVector - 1) / kLargestVector * kLargestVector;
  // rows of whole vectors; working memory
  thread_local std::vector<float> near_rows;
  thread_local std::vector<int32_t> id_rows;
  near_rows.assign(height * stride, 1.0f / snapshot.far_depth);
  id_rows.assign(height * stride, -1);
  HWY_DYNAMIC_DISPATCH(CoverAll)
  ({&snapshot, &ShapesOf(tables), stride, near_rows.data(), id_rows.data()},
   is_shown);
  for (size_t y = 0; y < height; ++y) {
    std::copy_n(near_rows.data() + y * stride, width,
                nearness.data() + y * width);
    std::copy_n(id_rows.data() + y * stride, width,
                primitive.data() + y * width);
  }
}

}  // namespace replicant::env::raycast
#endif
