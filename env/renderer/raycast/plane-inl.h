// Planes in pieces: neighbouring pixels share the corners of a plane's cells
// and most of what may shade them. Included once per instruction set.
#include <algorithm>
#include <array>
#include <vector>

#include "env/renderer/raycast/shade_triangle-inl.h"

#if defined(REPLICANT_RAYCAST_PLANE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_PLANE_INL_H_
#undef REPLICANT_RAYCAST_PLANE_INL_H_
#else
#define REPLICANT_RAYCAST_PLANE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// Part of a plane: the rectangle around the points of some pixels, and the grid
// lines around them.
struct PlanePart {
  Footprint rect;
  int column_low, column_high, row_low, row_high;

  int num_columns() const { return column_high - column_low + 1; }
  int num_corners() const { return num_columns() * (row_high - row_low + 1); }
};

// Where the ray through picture coordinates (x, y) meets the plane; `fallback`
// where it does not or far away.
HWY_INLINE Vec3 MeetPlane(const LocalRays& rays, Float x, Float y,
                          Vec3 fallback) {
  const Vec3 d = rays.Direction(x, y);
  const Float t = Set(-rays.origin[2]) / d.z;
  const Mask is_near = hn::And(t > Zero(), t < Set(1e6f));
  return {If(is_near, Fma(d.x, t, Set(rays.origin[0])), fallback.x),
          If(is_near, Fma(d.y, t, Set(rays.origin[1])), fallback.y), Zero()};
}

// Points of a vector of pixels: the sample's, which chooses the triangle, and
// the centre's, which is coloured.
struct PlanePoints {
  Vec3 hit, center;
};
HWY_INLINE PlanePoints FindPoints(const LocalRays& rays,
                                  const PixelPlaces& at) {
  const Vec3 hit =
      MeetPlane(rays, at.sample_x, at.sample_y, {Zero(), Zero(), Zero()});
  const Float half = Set(0.5f);
  return {hit, MeetPlane(rays, at.x + half, at.y + half, hit)};
}

// The rectangle around the points behind the rectangle of pixels that `list`
// from `begin` to `end` lies in; false if that reaches beyond the plane's
// horizon. A list goes through the picture row by row.
inline bool FindRect(const Drawing& drawing, const PixelList& list,
                     size_t begin, size_t end, Footprint* rect) {
  const LocalRays& rays = drawing.rays;
  const int32_t first = list.pixels[begin];
  const int32_t last = list.pixels[end - 1];
  int x0 = 0;
  int x1 = drawing.snapshot->width;
  if (first >> 16 == last >> 16) {
    x0 = first & 0xFFFF;
    x1 = x0 + 1;
    for (size_t i = begin; i < end; ++i) {
      x0 = std::min(x0, list.pixels[i] & 0xFFFF);
      x1 = std::max(x1, (list.pixels[i] & 0xFFFF) + 1);
    }
  }
  *rect = {kMiss, -kMiss, kMiss, -kMiss};
  for (const int x : {x0, x1}) {
    for (const int y : {first >> 16, (last >> 16) + 1}) {
      Float3 d;
      for (size_t i = 0; i < 3; ++i) {
        d[i] = rays.base[i] + static_cast<float>(x) * rays.per_x[i] +
               static_cast<float>(y) * rays.per_y[i];
      }
      const float t = -rays.origin[2] / d[2];
      // a pixel here may not be larger than the whole picture's scene
      if (!(t > 0 && t < 1e4f)) return false;
      rect->x_low = std::min(rect->x_low, rays.origin[0] + d[0] * t);
      rect->x_high = std::max(rect->x_high, rays.origin[0] + d[0] * t);
      rect->y_low = std::min(rect->y_low, rays.origin[1] + d[1] * t);
      rect->y_high = std::max(rect->y_high, rays.origin[1] + d[1] * t);
    }
  }
  return true;
}

// The same from the points themselves.
inline HWY_ATTR Footprint MeasureRect(const Drawing& drawing,
                                      const PixelList& list, size_t begin,
                                      size_t end) {
  Float x_low = Set(kMiss), x_high = Set(-kMiss);
  Float y_low = Set(kMiss), y_high = Set(-kMiss);
  const Int last = hn::Set(kInt, static_cast<int32_t>(end));
  for (size_t i = begin; i < end; i += NumLanes()) {
    const PixelPlaces at = FindPlaces(hn::LoadU(kInt, list.pixels.data() + i),
                                      hn::LoadU(kInt, list.samples.data() + i));
    const auto [hit, center] = FindPoints(drawing.rays, at);
    // what lies behind the end must not matter: it differs between vectors of
    // different lengths
    const Mask counts = hn::RebindMask(
        kFloat, hn::Lt(CountFrom(static_cast<int32_t>(i)), last));
    x_low = If(counts, hn::Min(x_low, hn::Min(hit.x, center.x)), x_low);
    x_high = If(counts, hn::Max(x_high, hn::Max(hit.x, center.x)), x_high);
    y_low = If(counts, hn::Min(y_low, hn::Min(hit.y, center.y)), y_low);
    y_high = If(counts, hn::Max(y_high, hn::Max(hit.y, center.y)), y_high);
  }
  return {hn::GetLane(hn::MinOfLanes(kFloat, x_low)),
          hn::GetLane(hn::MaxOfLanes(kFloat, x_high)),
          hn::GetLane(hn::MinOfLanes(kFloat, y_low)),
          hn::GetLane(hn::MaxOfLanes(kFloat, y_high))};
}

inline HWY_ATTR PlanePart FindPart(const Drawing& drawing,
                                   const PixelList& list, size_t begin,
                                   size_t end) {
  const Primitive& p = *drawing.primitive;
  PlanePart part;
  if (!FindRect(drawing, list, begin, end, &part.rect)) {
    part.rect = MeasureRect(drawing, list, begin, end);
  }
  const auto line = [](const PlaneGrid& grid, float at) HWY_ATTR {
    return hn::GetLane(FindGridCell(grid, Set(at)).index);
  };
  // a line more on either side, for rounding
  part.column_low = std::max(0, line(p.grid[0], part.rect.x_low) - 1);
  part.column_high =
      std::min(p.grid[0].num_cells, line(p.grid[0], part.rect.x_high) + 2);
  part.row_low = std::max(0, line(p.grid[1], part.rect.y_low) - 1);
  part.row_high =
      std::min(p.grid[1].num_cells, line(p.grid[1], part.rect.y_high) + 2);
  return part;
}

// Colours of the corners of a part, for each pass and channel one after the
// other, rows of num_columns() corners.
struct CornerTable {
  static constexpr int kCapacity = 192;
  static constexpr size_t kMaxPasses = 9;  // without shadow, and eight lights
  PlanePart part;
  HWY_ALIGN std::array<float, kMaxPasses * 3 * (kCapacity + 64)> colors;

  static constexpr size_t Offset(size_t pass, size_t channel) {
    return (pass * 3 + channel) * (kCapacity + 64);
  }
};

inline HWY_ATTR void LightCorners(const Drawing& drawing, CornerTable& table) {
  const PlanePart& part = table.part;
  const Primitive& p = *drawing.primitive;
  const int columns = part.num_columns();
  const int count = part.num_corners();
  const Vec3 normal = {Zero(), Zero(), Set(1.0f)};
  std::array<float, CornerTable::kCapacity + 64> x, y;
  size_t filled = 0;
  for (int row = part.row_low; row <= part.row_high; ++row) {
    const float line = p.grid[1].Line(row);
    for (int column = 0; column < columns; ++column, ++filled) {
      x[filled] = p.grid[0].Line(part.column_low + column);
      y[filled] = line;
    }
  }
  std::fill_n(x.begin() + filled, NumLanes(), 0.0f);
  std::fill_n(y.begin() + filled, NumLanes(), 0.0f);
  const LocalScene& scene = drawing.scene;
  for (size_t i = 0; i < static_cast<size_t>(count); i += NumLanes()) {
    const Vec3 corner = {hn::LoadU(kFloat, x.data() + i),
                         hn::LoadU(kFloat, y.data() + i), Zero()};
    const std::array<SurfacePoint, 1> point = {
        {{corner, normal, Normalized(Set(scene.eye) - corner)}}};
    const auto store = [&](size_t index, Pass pass, int light) HWY_ATTR {
      const Color c = CornerColors(scene, pass, light, point)[0];
      float* to = table.colors.data() + i;
      hn::StoreU(c.x, kFloat, to + CornerTable::Offset(index, 0));
      hn::StoreU(c.y, kFloat, to + CornerTable::Offset(index, 1));
      hn::StoreU(c.z, kFloat, to + CornerTable::Offset(index, 2));
    };
    if (drawing.casters == nullptr) {
      store(0, Pass::kAll, 0);
      continue;
    }
    store(0, Pass::kShadowless, 0);
    size_t index = 0;
    for (const Casters& casters : *drawing.casters) {
      const auto light =
          static_cast<int>(casters.light - drawing.snapshot->lights.data());
      store(++index, Pass::kOneLight, light);
    }
  }
}

// A vector of points of a part: the cell that each is drawn with and the place
// in it, which may lie outside.
struct CellPlaces {
  Int index;       // of the cell's corner A in the table
  Float u, v;      // of the centre
  Mask is_second;  // triangle B C D, not A B D
};

HWY_INLINE CellPlaces FindCellPlaces(const Primitive& p, const PlanePart& part,
                                     const PlanePoints& points) {
  const GridCell x = FindGridCell(p.grid[0], points.hit.x);
  const GridCell y = FindGridCell(p.grid[1], points.hit.y);
  const Float per_x = Set(1.0f) / hn::Max(x.high - x.low, Set(1e-20f));
  const Float per_y = Set(1.0f) / hn::Max(y.high - y.low, Set(1e-20f));
  const Float hit_u = (points.hit.x - x.low) * per_x;
  const Float hit_v = (points.hit.y - y.low) * per_y;
  return {(y.index - hn::Set(kInt, part.row_low)) *
                  hn::Set(kInt, part.num_columns()) +
              (x.index - hn::Set(kInt, part.column_low)),
          (points.center.x - x.low) * per_x, (points.center.y - y.low) * per_y,
          hit_u + hit_v >= Set(1.0f)};
}

// Blends the corners of every pixel's cell, for all passes. The few cells that
// a vector of pixels lies in are taken one after the other.
HWY_INLINE void BlendCells(const CornerTable& table, const CellPlaces& places,
                           size_t num_passes, Color* colors) {
  const auto columns = static_cast<size_t>(table.part.num_columns());
  const Float rest_u = Set(1.0f) - places.u;
  const Float rest_v = Set(1.0f) - places.v;
  std::array<int32_t, hn::MaxLanes(kInt)> indices;
  hn::StoreU(places.index, kInt, indices.data());
  auto todo = hn::Eq(places.index, places.index);
  bool is_first = true;
  for (; !hn::AllFalse(kInt, todo); is_first = false) {
    const int32_t index =
        indices[static_cast<size_t>(hn::FindFirstTrue(kInt, todo))];
    const auto is_here = hn::Eq(places.index, hn::Set(kInt, index));
    const Mask here = hn::RebindMask(kFloat, is_here);
    const auto blend = [&](size_t pass, size_t channel, Float old) HWY_ATTR {
      const float* at = table.colors.data() +
                        CornerTable::Offset(pass, channel) +
                        static_cast<size_t>(index);
      const float a = at[0], b = at[1], c = at[columns + 1], d = at[columns];
      const Float first =
          Fma(Set(d - a), places.v, Fma(Set(b - a), places.u, Set(a)));
      const Float second =
          Fma(Set(b - c), rest_v, Fma(Set(d - c), rest_u, Set(c)));
      const Float color = If(places.is_second, second, first);
      return is_first ? color : If(here, color, old);
    };
    for (size_t pass = 0; pass < num_passes; ++pass) {
      Color& color = colors[pass];
      color = {blend(pass, 0, color.x), blend(pass, 1, color.y),
               blend(pass, 2, color.z)};
    }
    todo = hn::AndNot(is_here, todo);
  }
}

inline HWY_ATTR void ShadeWithTable(const Drawing& drawing,
                                    const CornerTable& table, size_t begin,
                                    size_t end, const PixelList& list,
                                    Frame& frame) {
  const Primitive& p = *drawing.primitive;
  const size_t num_passes =
      drawing.casters == nullptr ? 1 : 1 + drawing.casters->size();
  for (size_t i = begin; i < end; i += NumLanes()) {
    const PixelPlaces at = FindPlaces(hn::LoadU(kInt, list.pixels.data() + i),
                                      hn::LoadU(kInt, list.samples.data() + i));
    const PlanePoints points = FindPoints(drawing.rays, at);
    const Vec3 center = points.center;
    std::array<Color, CornerTable::kMaxPasses> colors;
    for (size_t pass = 0; pass < num_passes; ++pass) {
      colors[pass] = {Zero(), Zero(), Zero()};
    }
    BlendCells(table, FindCellPlaces(p, table.part, points), num_passes,
               colors.data());
    Color texture = Set(Float3{1, 1, 1});
    if (p.texture != nullptr) {
      texture =
          TextureColor(drawing, at, center, [&](Float x, Float y) HWY_ATTR {
            return MeetPlane(drawing.rays, x, y, center);
          });
    }
    const auto blend = [&](Pass /*pass*/, int index, int /*light*/) HWY_ATTR {
      return colors[static_cast<size_t>(index)];
    };
    const auto may_shade = [&](const Footprint& print) HWY_ATTR {
      const Mask is_in_x =
          hn::And(center.x >= Set(print.x_low), center.x <= Set(print.x_high));
      const Mask is_in_y =
          hn::And(center.y >= Set(print.y_low), center.y <= Set(print.y_high));
      return !hn::AllFalse(kFloat, hn::And(is_in_x, is_in_y));
    };
    StoreShaded(AddPasses(drawing, center, texture, blend, may_shade), i,
                frame);
  }
}

// What can shade the plane, and where.
inline std::vector<Casters> FindFootprints(const Drawing& drawing) {
  std::vector<Casters> all = *drawing.casters;
  for (Casters& casters : all) {
    casters.primitives.clear();
    casters.footprints.clear();
    for (const Primitive& caster : drawing.snapshot->primitives) {
      if (&caster == drawing.primitive || !caster.casts_shadow) continue;
      casters.primitives.push_back(&caster);
      casters.footprints.push_back(
          FindFootprint(*casters.light, caster, *drawing.primitive));
    }
  }
  return all;
}

// Those of `all` whose shadows may fall on a part.
inline void ChooseCasters(const Casters& all, const Footprint& part,
                          Casters& chosen) {
  chosen.primitives.clear();
  chosen.footprints.clear();
  for (size_t i = 0; i < all.primitives.size(); ++i) {
    if (!all.footprints[i].Overlaps(part)) continue;
    chosen.primitives.push_back(all.primitives[i]);
    chosen.footprints.push_back(all.footprints[i]);
  }
}

inline HWY_ATTR void ShadePlane(const Drawing& drawing, const PixelList& list,
                                Frame& frame) {
  // some rows of a small picture, less where those have too many corners
  constexpr size_t kLargestPart = 384;
  constexpr size_t kSmallestPart = 96;
  CornerTable table;
  std::vector<Casters> all;
  if (drawing.casters != nullptr) all = FindFootprints(drawing);
  size_t size = kLargestPart;
  for (size_t begin = 0; begin < list.count;) {
    const size_t end = std::min(list.count, begin + size);
    table.part = FindPart(drawing, list, begin, end);
    const bool fits = table.part.num_corners() <= CornerTable::kCapacity;
    if (!fits && size > kSmallestPart) {
      size /= 2;
      continue;
    }
    for (size_t i = 0; i < all.size(); ++i) {
      ChooseCasters(all[i], table.part.rect, (*drawing.casters)[i]);
    }
    // towards the horizon there are more corners than pixels
    if (fits) {
      LightCorners(drawing, table);
      ShadeWithTable(drawing, table, begin, end, list, frame);
      size = std::min(2 * size, kLargestPart);
    } else {
      ShadeRange<Shape::kPlane>(drawing, begin, end, list, frame);
    }
    begin = end;
  }
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
