// Planes in parts: neighbouring pixels share corners of a plane's cells and
// most of the casters that may shade them. Included once per instruction set.
#include <algorithm>
#include <array>
#include <limits>
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

// The point where the ray through picture coordinates (x, y) hits the plane;
// `fallback` if there is none, or only far away.
HWY_INLINE Vec3 MeetPlane(const LocalRays& rays, Float x, Float y,
                          Vec3 fallback) {
  Vec3 o = Set(rays.origin);
  Vec3 d = rays.At(x, y);
  if (rays.are_parallel) {
    o = o + d;
    d = Set(rays.forward);
  }
  const Float t = (Zero() - o.z) / d.z;
  const Mask is_near = hn::And(t > Zero(), t < Set(1e6f));
  return {If(is_near, Fma(d.x, t, o.x), fallback.x),
          If(is_near, Fma(d.y, t, o.y), fallback.y), Zero()};
}

// Points of a vector of pixels: the sample's point selects the triangle, the
// centre's point is coloured.
struct PlanePoints {
  Vec3 hit, center;
};
HWY_INLINE PlanePoints FindPoints(const LocalRays& rays,
                                  const PixelPlaces& at) {
  const Vec3 hit =
      MeetPlane(rays, at.sample_x, at.sample_y, {Zero(), Zero(), Zero()});
  if (at.are_centers) return {hit, hit};
  const Float half = Set(0.5f);
  return {hit, MeetPlane(rays, at.x + half, at.y + half, hit)};
}

// The rectangle of the plane that covers the pixels of `list` from `begin` to
// `end`; false if it reaches beyond the plane's horizon. A list goes through
// the picture row by row.
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
      Float3 o = rays.origin;
      Float3 d;
      for (size_t i = 0; i < 3; ++i) {
        d[i] = rays.base[i] + static_cast<float>(x) * rays.per_x[i] +
               static_cast<float>(y) * rays.per_y[i];
        if (!rays.are_parallel) continue;
        o[i] += d[i];
        d[i] = rays.forward[i];
      }
      const float t = -o[2] / d[2];
      // a pixel here must not be larger than the whole scene
      if (!(t > 0 && t < 1e4f)) return false;
      rect->x_low = std::min(rect->x_low, o[0] + d[0] * t);
      rect->x_high = std::max(rect->x_high, o[0] + d[0] * t);
      rect->y_low = std::min(rect->y_low, o[1] + d[1] * t);
      rect->y_high = std::max(rect->y_high, o[1] + d[1] * t);
    }
  }
  return true;
}

// As above, measured from the points themselves.
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
    // lanes after the end must not count: they depend on the vector
    // length
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
  // one more line on either side, for rounding
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

// A vector of points of a part: the cell of each, and the position in that
// cell, which may lie outside.
struct CellPlaces {
  Int index;       // of the cell's corner A in the table
  Float u, v;      // of the centre
  Mask is_second;  // triangle B C D, not A B D
};

HWY_INLINE CellPlaces FindCellPlaces(const Primitive& p, const PlanePart& part,
                                     const PlanePoints& points) {
  const GridCell x = FindGridCell(p.grid[0], points.hit.x);
  const GridCell y = FindGridCell(p.grid[1], points.hit.y);
  const Float hit_u = (points.hit.x - x.low) * x.per_width;
  const Float hit_v = (points.hit.y - y.low) * y.per_width;
  return {(y.index - hn::Set(kInt, part.row_low)) *
                  hn::Set(kInt, part.num_columns()) +
              (x.index - hn::Set(kInt, part.column_low)),
          (points.center.x - x.low) * x.per_width,
          (points.center.y - y.low) * y.per_width, hit_u + hit_v >= Set(1.0f)};
}

// Weights of a cell's corner colours, from corner A (or C, in the second
// triangle) along one edge and then the other.
struct CellWeights {
  Mask is_second;
  Float first, second;
};

// The colour between corners A B C D of cells.
HWY_INLINE Float BlendCorners(const CellWeights& weights, Float a, Float b,
                              Float c, Float d) {
  const Float from = If(weights.is_second, c, a);
  const Float along = If(weights.is_second, d, b);
  const Float across = If(weights.is_second, b, d);
  return Fma(across - from, weights.second,
             Fma(along - from, weights.first, from));
}

// Blends the corners of every pixel's cell, for all passes. The corners of
// neighbouring cells are loaded as vectors, one for the first row and one for
// the next.
HWY_INLINE void BlendCells(const CornerTable& table, const CellPlaces& places,
                           size_t num_passes, Color* colors) {
  const auto columns = static_cast<size_t>(table.part.num_columns());
  const Float one = Set(1.0f);
  const CellWeights weights = {places.is_second,
                               If(places.is_second, one - places.u, places.u),
                               If(places.is_second, one - places.v, places.v)};
  constexpr size_t kMaxLanes = hn::MaxLanes(kFloat);
  if constexpr (kMaxLanes < 4) {
    for (size_t pass = 0; pass < num_passes; ++pass) {
      const auto blend = [&](size_t channel) HWY_ATTR {
        const float* at =
            table.colors.data() + CornerTable::Offset(pass, channel);
        return BlendCorners(weights, Gather(at, places.index),
                            Gather(at + 1, places.index),
                            Gather(at + columns + 1, places.index),
                            Gather(at + columns, places.index));
      };
      colors[pass] = {blend(0), blend(1), blend(2)};
    }
    return;
  }
  const auto last = static_cast<int32_t>(NumLanes()) - 1;
  auto todo = hn::Eq(places.index, places.index);
  while (!hn::AllFalse(kInt, todo)) {
    const int32_t base = hn::GetLane(hn::MinOfLanes(
        kInt, hn::IfThenElse(todo, places.index,
                             hn::Set(kInt, std::numeric_limits<int>::max()))));
    const Int at = places.index - hn::Set(kInt, base);
    const auto is_here = hn::And(todo, hn::Lt(at, hn::Set(kInt, last)));
    const Mask here = hn::RebindMask(kFloat, is_here);
    // inactive lanes may look up any entry
    const Int mask = hn::Set(kInt, last);
    const auto own = hn::IndicesFromVec(kFloat, hn::And(at, mask));
    const auto next =
        hn::IndicesFromVec(kFloat, hn::And(at + hn::Set(kInt, 1), mask));
    const auto blend = [&](size_t pass, size_t channel, Float old) HWY_ATTR {
      const float* from = table.colors.data() +
                          CornerTable::Offset(pass, channel) +
                          static_cast<size_t>(base);
      const Float row = hn::LoadU(kFloat, from);
      const Float row_after = hn::LoadU(kFloat, from + columns);
      return If(here,
                BlendCorners(weights, hn::TableLookupLanes(row, own),
                             hn::TableLookupLanes(row, next),
                             hn::TableLookupLanes(row_after, next),
                             hn::TableLookupLanes(row_after, own)),
                old);
    };
    for (size_t pass = 0; pass < num_passes; ++pass) {
      Color& color = colors[pass];
      color = {blend(pass, 0, color.x), blend(pass, 1, color.y),
               blend(pass, 2, color.z)};
    }
    todo = hn::AndNot(is_here, todo);
  }
}

// Pixels of a part: some rows of a small picture.
inline constexpr size_t kLargestPart = 384;

// Values of a part's pixels, and of a whole vector after them.
template <typename T>
using PerPixel = std::array<T, kLargestPart + 2 * hn::MaxLanes(kFloat)>;

// Values of the pixels of a part, computed step by step for all of them, so
// that the latencies of a step (a division, a texel) overlap between vectors of
// pixels.
struct PartPixels {
  size_t begin, end;  // in the list
  // position on the plane: the point that is coloured, and the point that
  // selects the triangle
  HWY_ALIGN PerPixel<float> x, y, hit_x, hit_y;
  // texture coordinates, and colours in [0, 1]
  HWY_ALIGN PerPixel<float> s, t, share;
  HWY_ALIGN PerPixel<int32_t> level;
  HWY_ALIGN PerPixel<float> red, green, blue;
  // cells and the places in them; `side` is 1 in the second triangle
  HWY_ALIGN PerPixel<int32_t> cell;
  HWY_ALIGN PerPixel<float> u, v, side;

  size_t size() const { return end - begin; }
  HWY_INLINE PlanePoints Points(size_t i) const {
    return {{hn::LoadU(kFloat, hit_x.data() + i),
             hn::LoadU(kFloat, hit_y.data() + i), Zero()},
            {hn::LoadU(kFloat, x.data() + i), hn::LoadU(kFloat, y.data() + i),
             Zero()}};
  }
  HWY_INLINE FlatPlace TexturePlace(size_t i) const {
    return {hn::LoadU(kFloat, s.data() + i),
            hn::LoadU(kFloat, t.data() + i),
            {hn::LoadU(kInt, level.data() + i),
             hn::LoadU(kFloat, share.data() + i)}};
  }
  HWY_INLINE Color TextureColorAt(size_t i) const {
    return {hn::LoadU(kFloat, red.data() + i),
            hn::LoadU(kFloat, green.data() + i),
            hn::LoadU(kFloat, blue.data() + i)};
  }
  HWY_INLINE void StoreTexture(Color color, size_t i) {
    hn::StoreU(color.x, kFloat, red.data() + i);
    hn::StoreU(color.y, kFloat, green.data() + i);
    hn::StoreU(color.z, kFloat, blue.data() + i);
  }
};

HWY_INLINE PixelPlaces LoadPlaces(const PixelList& list, size_t i) {
  return FindPlaces(hn::LoadU(kInt, list.pixels.data() + i),
                    hn::LoadU(kInt, list.samples.data() + i));
}

inline HWY_ATTR void FindPartPoints(const Drawing& drawing,
                                    const PixelList& list, PartPixels& part) {
  for (size_t i = 0; i < part.size(); i += NumLanes()) {
    const PlanePoints points =
        FindPoints(drawing.rays, LoadPlaces(list, part.begin + i));
    hn::StoreU(points.hit.x, kFloat, part.hit_x.data() + i);
    hn::StoreU(points.hit.y, kFloat, part.hit_y.data() + i);
    hn::StoreU(points.center.x, kFloat, part.x.data() + i);
    hn::StoreU(points.center.y, kFloat, part.y.data() + i);
  }
}

inline HWY_ATTR TexturePoint FindTexturePoint(const Drawing& drawing,
                                              const PixelList& list,
                                              const PartPixels& part,
                                              size_t i) {
  const Vec3 center = part.Points(i).center;
  return FindTexturePoint(drawing, LoadPlaces(list, part.begin + i), center,
                          [&](Float x, Float y) HWY_ATTR {
                            return MeetPlane(drawing.rays, x, y, center);
                          });
}

inline HWY_ATTR void FindTexturePlaces(const Drawing& drawing,
                                       const PixelList& list,
                                       PartPixels& part) {
  for (size_t i = 0; i < part.size(); i += NumLanes()) {
    const FlatPlace place = FindFlatPlace(
        *drawing.primitive, FindTexturePoint(drawing, list, part, i));
    hn::StoreU(place.s, kFloat, part.s.data() + i);
    hn::StoreU(place.t, kFloat, part.t.data() + i);
    hn::StoreU(place.mip.share, kFloat, part.share.data() + i);
    hn::StoreU(place.mip.level, kInt, part.level.data() + i);
  }
}

// Pixels of a part whose texels must be blended, by number.
struct BlendedPixels {
  HWY_ALIGN PerPixel<int32_t> index;
  size_t count = 0;

  HWY_INLINE void Append(size_t first, Mask which) {
    count += StoreChosen(hn::RebindMask(kInt, which),
                         CountFrom(static_cast<int32_t>(first)),
                         index.data() + count);
  }
};

// Reads the texels of pixels with a single colour; lists the other pixels: in
// `coarse` where only the coarser level must be blended, else in `both`.
inline HWY_ATTR void ReadEvenTexels(const Texture& texture, PartPixels& part,
                                    BlendedPixels& coarse,
                                    BlendedPixels& both) {
  for (size_t i = 0; i < part.size(); i += NumLanes()) {
    const EvenTexels even = ReadEvenTexels(texture, part.TexturePlace(i));
    part.StoreTexture(even.color, i);
    if (hn::AllTrue(kFloat, even.is_known)) continue;
    coarse.Append(i, hn::AndNot(even.is_known, even.is_fine_known));
    both.Append(i, hn::Not(even.is_fine_known));
  }
}

// Blends the texels of the listed pixels. `kIsFineKnown`: the part has their
// colours of the finer level.
template <bool kIsFineKnown>
HWY_ATTR void BlendTexels(const Texture& texture, BlendedPixels& blended,
                          PartPixels& part) {
  // fill the last vector with any pixel
  std::fill_n(blended.index.begin() + blended.count, NumLanes(), 0);
  HWY_ALIGN std::array<float, 3 * hn::MaxLanes(kFloat)> rgb;
  const Int face = hn::Zero(kInt);
  for (size_t i = 0; i < blended.count; i += NumLanes()) {
    const Int index = hn::LoadU(kInt, blended.index.data() + i);
    const MipLevels mip = {hn::GatherIndex(kInt, part.level.data(), index),
                           Gather(part.share.data(), index)};
    const Float s = Gather(part.s.data(), index);
    const Float t = Gather(part.t.data(), index);
    const Color fine = kIsFineKnown ? Color{Gather(part.red.data(), index),
                                            Gather(part.green.data(), index),
                                            Gather(part.blue.data(), index)}
                                    : Bilinear(texture, mip.level, face, s, t);
    const Color color = BlendLevels(texture, mip, face, s, t, fine);
    hn::StoreU(color.x, kFloat, rgb.data());
    hn::StoreU(color.y, kFloat, rgb.data() + NumLanes());
    hn::StoreU(color.z, kFloat, rgb.data() + 2 * NumLanes());
    const size_t used = std::min(NumLanes(), blended.count - i);
    for (size_t lane = 0; lane < used; ++lane) {
      const auto to = static_cast<size_t>(blended.index[i + lane]);
      part.red[to] = rgb[lane];
      part.green[to] = rgb[NumLanes() + lane];
      part.blue[to] = rgb[2 * NumLanes() + lane];
    }
  }
}

// Reads the texture. Most pixels of a chequered floor see a single colour; the
// others are gathered before their texels are blended.
inline HWY_ATTR void ReadTexture(const Drawing& drawing, const PixelList& list,
                                 PartPixels& part) {
  const Primitive& p = *drawing.primitive;
  if (p.texture == nullptr) {
    for (size_t i = 0; i < part.size(); i += NumLanes()) {
      part.StoreTexture(Set(Float3{1, 1, 1}), i);
    }
    return;
  }
  if (p.texture->is_cube) {
    for (size_t i = 0; i < part.size(); i += NumLanes()) {
      part.StoreTexture(
          TextureColor(p, *p.texture, FindTexturePoint(drawing, list, part, i)),
          i);
    }
    return;
  }
  FindTexturePlaces(drawing, list, part);
  BlendedPixels coarse, both;
  ReadEvenTexels(*p.texture, part, coarse, both);
  BlendTexels<true>(*p.texture, coarse, part);
  BlendTexels<false>(*p.texture, both, part);
}

inline HWY_ATTR void FindCells(const Primitive& p, const PlanePart& plane,
                               PartPixels& part) {
  // the pixels that pad the last vector may lie in other parts
  const Int last = hn::Set(kInt, plane.num_corners() - plane.num_columns() - 2);
  for (size_t i = 0; i < part.size(); i += NumLanes()) {
    const CellPlaces places = FindCellPlaces(p, plane, part.Points(i));
    hn::StoreU(hn::Min(hn::Max(places.index, hn::Zero(kInt)), last), kInt,
               part.cell.data() + i);
    hn::StoreU(places.u, kFloat, part.u.data() + i);
    hn::StoreU(places.v, kFloat, part.v.data() + i);
    hn::StoreU(hn::IfThenElseZero(places.is_second, Set(1.0f)), kFloat,
               part.side.data() + i);
  }
}

// Lights the part and combines it with the texture.
inline HWY_ATTR void LightPart(const Drawing& drawing, const CornerTable& table,
                               const PartPixels& part, Frame& frame) {
  const size_t num_passes =
      drawing.casters == nullptr ? 1 : 1 + drawing.casters->size();
  for (size_t i = 0; i < part.size(); i += NumLanes()) {
    std::array<Color, CornerTable::kMaxPasses> colors;
    for (size_t pass = 0; pass < num_passes; ++pass) {
      colors[pass] = {Zero(), Zero(), Zero()};
    }
    const CellPlaces places = {
        hn::LoadU(kInt, part.cell.data() + i),
        hn::LoadU(kFloat, part.u.data() + i),
        hn::LoadU(kFloat, part.v.data() + i),
        hn::LoadU(kFloat, part.side.data() + i) > Zero()};
    BlendCells(table, places, num_passes, colors.data());
    const auto blend = [&](Pass /*pass*/, int index, int /*light*/) HWY_ATTR {
      return colors[static_cast<size_t>(index)];
    };
    const Vec3 center = part.Points(i).center;
    const auto may_shade = [&](const Footprint& print) HWY_ATTR {
      const Mask is_in_x =
          hn::And(center.x >= Set(print.x_low), center.x <= Set(print.x_high));
      const Mask is_in_y =
          hn::And(center.y >= Set(print.y_low), center.y <= Set(print.y_high));
      return !hn::AllFalse(kFloat, hn::And(is_in_x, is_in_y));
    };
    const auto is_turned_away = [](const LocalLight& /*light*/)
                                    HWY_ATTR { return Zero() > Zero(); };
    const SeenSurface seen{center, part.TextureColorAt(i), Zero() == Zero(),
                           hn::Set(kInt, 1)};
    StoreShaded(AddPasses(drawing, seen, blend, may_shade, is_turned_away),
                part.begin + i, frame);
  }
}

inline HWY_ATTR void ShadeWithTable(const Drawing& drawing,
                                    const CornerTable& table,
                                    const PixelList& list, PartPixels& part,
                                    Frame& frame) {
  FindPartPoints(drawing, list, part);
  ReadTexture(drawing, list, part);
  FindCells(*drawing.primitive, table.part, part);
  LightPart(drawing, table, part, frame);
}

// The casters that can shade the plane, with their footprints.
inline std::vector<Casters> FindFootprints(const Drawing& drawing) {
  std::vector<Casters> all(drawing.casters->size());
  for (size_t i = 0; i < all.size(); ++i) {
    Casters& casters = all[i];
    casters.light = (*drawing.casters)[i].light;
    for (const Primitive& caster : drawing.snapshot->primitives) {
      if (&caster == drawing.primitive || !caster.casts_shadow) continue;
      casters.primitives.push_back(&caster);
      casters.footprints.push_back(
          FindFootprint(*casters.light, caster, *drawing.primitive));
    }
  }
  return all;
}

// The casters of `all` whose shadows may fall on a part.
inline void ChooseCasters(const Casters& all, const Footprint& part,
                          Casters& chosen) {
  chosen.primitives.clear();
  chosen.footprints.clear();
  chosen.around = kNowhere;
  for (size_t i = 0; i < all.primitives.size(); ++i) {
    if (!all.footprints[i].Overlaps(part)) continue;
    chosen.primitives.push_back(all.primitives[i]);
    chosen.footprints.push_back(all.footprints[i]);
    chosen.around.Include(all.footprints[i]);
  }
}

inline HWY_ATTR void ShadePlane(const Drawing& drawing, const PixelList& list,
                                Frame& frame) {
  // smaller if there are too many corners
  constexpr size_t kSmallestPart = 96;
  CornerTable table;
  PartPixels part;
  std::vector<Casters> all;
  if (drawing.casters != nullptr) all = FindFootprints(drawing);
  const Texture* texture = drawing.primitive->texture;
  const bool has_alpha = texture != nullptr && texture->alpha != nullptr;
  size_t size = kLargestPart;
  for (size_t begin = 0; begin < list.count;) {
    const size_t end = std::min(list.count, begin + size);
    table.part = FindPart(drawing, list, begin, end);
    const bool fits = table.part.num_corners() <= CornerTable::kCapacity;
    if (!fits && !has_alpha && size > kSmallestPart) {
      size /= 2;
      continue;
    }
    for (size_t i = 0; drawing.casters != nullptr && i < all.size(); ++i) {
      ChooseCasters(all[i], table.part.rect, (*drawing.casters)[i]);
    }
    // towards the horizon there are more corners than pixels
    if (fits && !has_alpha) {
      LightCorners(drawing, table);
      part.begin = begin;
      part.end = end;
      ShadeWithTable(drawing, table, list, part, frame);
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
