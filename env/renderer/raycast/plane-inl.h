// Planes in pieces: neighbouring pixels share the corners of a plane's cells
// and most of what may shade them. Included once per instruction set.
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
  float x_low, x_high, y_low, y_high;
  int column_low, column_high, row_low, row_high;

  int num_columns() const { return column_high - column_low + 1; }
  int num_corners() const { return num_columns() * (row_high - row_low + 1); }
};

inline HWY_ATTR PlanePart FindPart(const Drawing& drawing, size_t begin,
                                   size_t end, const PixelList& list) {
  const Primitive& p = *drawing.primitive;
  Float x_low = Set(kMiss), x_high = Set(-kMiss);
  Float y_low = Set(kMiss), y_high = Set(-kMiss);
  const Float half = Set(0.5f);
  for (size_t i = begin; i < end; i += NumLanes()) {
    const PixelPlaces at = FindPlaces(hn::LoadU(kInt, list.pixels.data() + i),
                                      hn::LoadU(kInt, list.samples.data() + i));
    const Vec3 hit = FindHit<Shape::kPlane>(drawing, at);
    // corners belong to the sample's cell, shadows to the pixel's centre, up
    // to half a pixel away
    const Vec3 origin = Set(drawing.rays.origin);
    const Vec3 ray = drawing.rays.Direction(at.x + half, at.y + half);
    const Float t = Zero() - origin.z * SafeInverse(ray.z);
    const Mask is_near = hn::And(t > Zero(), t < Set(1e6f));
    const Float cx = If(is_near, origin.x + ray.x * t, hit.x);
    const Float cy = If(is_near, origin.y + ray.y * t, hit.y);
    x_low = hn::Min(x_low, hn::Min(hit.x, cx));
    x_high = hn::Max(x_high, hn::Max(hit.x, cx));
    y_low = hn::Min(y_low, hn::Min(hit.y, cy));
    y_high = hn::Max(y_high, hn::Max(hit.y, cy));
  }
  PlanePart part;
  part.x_low = hn::GetLane(hn::MinOfLanes(kFloat, x_low));
  part.x_high = hn::GetLane(hn::MaxOfLanes(kFloat, x_high));
  part.y_low = hn::GetLane(hn::MinOfLanes(kFloat, y_low));
  part.y_high = hn::GetLane(hn::MaxOfLanes(kFloat, y_high));
  const auto line = [](const PlaneGrid& grid, float at) HWY_ATTR {
    return hn::GetLane(FindGridCell(grid, Set(at)).index);
  };
  part.column_low = line(p.grid[0], part.x_low);
  part.column_high = line(p.grid[0], part.x_high) + 1;
  part.row_low = line(p.grid[1], part.y_low);
  part.row_high = line(p.grid[1], part.y_high) + 1;
  return part;
}

// Colours of the corners of a part, for each pass and channel one after the
// other, rows of `stride` corners.
struct CornerTable {
  static constexpr int kCapacity = 192;
  static constexpr int kMaxPasses = 9;  // without shadow, and eight lights
  PlanePart part;
  HWY_ALIGN std::array<float, kMaxPasses * 3 * (kCapacity + 64)> colors;

  static constexpr size_t Offset(int pass, int channel) {
    return static_cast<size_t>(pass * 3 + channel) * (kCapacity + 64);
  }
  // Place of a corner in the table.
  HWY_INLINE Int Index(Int column, Int row) const {
    return (row - hn::Set(kInt, part.row_low)) *
               hn::Set(kInt, part.num_columns()) +
           (column - hn::Set(kInt, part.column_low));
  }
  HWY_INLINE Color Find(int pass, Int index) const {
    return {Gather(colors.data() + Offset(pass, 0), index),
            Gather(colors.data() + Offset(pass, 1), index),
            Gather(colors.data() + Offset(pass, 2), index)};
  }
  // For lanes that all want the same corner.
  HWY_INLINE Color Find(int pass, int32_t index) const {
    const auto i = static_cast<size_t>(index);
    return {Set(colors[Offset(pass, 0) + i]), Set(colors[Offset(pass, 1) + i]),
            Set(colors[Offset(pass, 2) + i])};
  }
};

// The corners that a vector of pixels is blended from. Within a large cell they
// are the same for all lanes, which saves the gathering.
struct CornerIndices {
  Int index[3];
  int32_t shared[3];
  bool is_shared;

  HWY_INLINE CornerIndices(const CornerTable& table, const PlaneTriangle& t) {
    is_shared = true;
    for (int i = 0; i < 3; ++i) {
      index[i] = table.Index(t.column[i], t.row[i]);
      is_shared = IsUniform(index[i], &shared[i]) && is_shared;
    }
  }
  HWY_INLINE Color Find(const CornerTable& table, int pass, int i) const {
    return is_shared ? table.Find(pass, shared[i]) : table.Find(pass, index[i]);
  }
};

inline HWY_ATTR void LightCorners(const Drawing& drawing, CornerTable& table) {
  const PlanePart& part = table.part;
  const Primitive& p = *drawing.primitive;
  const int columns = part.num_columns();
  const int count = part.num_corners();
  const Vec3 normal = {Zero(), Zero(), Set(1.0f)};
  std::array<float, CornerTable::kCapacity + 64> x, y;
  for (int i = 0; i < count + static_cast<int>(NumLanes()); ++i) {
    x[static_cast<size_t>(i)] = p.grid[0].Line(part.column_low + i % columns);
    y[static_cast<size_t>(i)] = p.grid[1].Line(part.row_low + i / columns);
  }
  for (size_t i = 0; i < static_cast<size_t>(count); i += NumLanes()) {
    const Vec3 corner = {hn::LoadU(kFloat, x.data() + i),
                         hn::LoadU(kFloat, y.data() + i), Zero()};
    const auto store = [&](int pass, Color c) HWY_ATTR {
      hn::StoreU(c.x, kFloat,
                 table.colors.data() + CornerTable::Offset(pass, 0) + i);
      hn::StoreU(c.y, kFloat,
                 table.colors.data() + CornerTable::Offset(pass, 1) + i);
      hn::StoreU(c.z, kFloat,
                 table.colors.data() + CornerTable::Offset(pass, 2) + i);
    };
    const LocalScene& scene = drawing.scene;
    if (drawing.casters == nullptr) {
      store(0, CornerColor(scene, Pass::kAll, 0, corner, normal));
      continue;
    }
    store(0, CornerColor(scene, Pass::kShadowless, 0, corner, normal));
    int index = 0;
    for (const Casters& casters : *drawing.casters) {
      const auto light =
          static_cast<int>(casters.light - drawing.snapshot->lights.data());
      store(++index,
            CornerColor(scene, Pass::kOneLight, light, corner, normal));
    }
  }
}

inline HWY_ATTR void ShadeWithTable(const Drawing& drawing,
                                    const CornerTable& table, size_t begin,
                                    size_t end, const PixelList& list,
                                    Frame& frame) {
  for (size_t i = begin; i < end; i += NumLanes()) {
    const PixelPlaces at = FindPlaces(hn::LoadU(kInt, list.pixels.data() + i),
                                      hn::LoadU(kInt, list.samples.data() + i));
    const Vec3 hit = FindHit<Shape::kPlane>(drawing, at);
    const PlaneTriangle t = FindPlaneTriangle(*drawing.primitive, hit);
    const CornerIndices corners(table, t);
    const auto blend = [&](Pass /*pass*/, int index, int /*light*/,
                           Float share1, Float share2) HWY_ATTR {
      const Color c0 = corners.Find(table, index, 0);
      const Color c1 = corners.Find(table, index, 1);
      const Color c2 = corners.Find(table, index, 2);
      return c0 + (c1 - c0) * share1 + (c2 - c0) * share2;
    };
    StoreShaded(ShadeTriangle(drawing, at, t.triangle, hit, blend), i, frame);
  }
}

// The ball around a part, in world coordinates.
inline Ball BallAround(const Primitive& p, const PlanePart& part) {
  const float x = 0.5f * (part.x_low + part.x_high);
  const float y = 0.5f * (part.y_low + part.y_high);
  const float dx = part.x_high - x;
  const float dy = part.y_high - y;
  Ball ball;
  for (size_t i = 0; i < 3; ++i) {
    ball.center[i] =
        p.position[i] + p.rotation[3 * i] * x + p.rotation[3 * i + 1] * y;
  }
  ball.radius = std::sqrt(dx * dx + dy * dy);
  return ball;
}

inline HWY_ATTR void ShadePlane(const Drawing& drawing, const PixelList& list,
                                Frame& frame) {
  // about a row of a small picture
  constexpr size_t kPart = 96;
  const Primitive& p = *drawing.primitive;
  CornerTable table;
  for (size_t begin = 0; begin < list.count; begin += kPart) {
    const size_t end = std::min(list.count, begin + kPart);
    table.part = FindPart(drawing, begin, end, list);
    if (drawing.casters != nullptr) {
      const Ball ball = BallAround(p, table.part);
      for (Casters& casters : *drawing.casters) {
        FindCasters(*drawing.snapshot, p, ball, casters);
      }
    }
    // towards the horizon there are more corners than pixels
    if (table.part.num_corners() <= CornerTable::kCapacity) {
      LightCorners(drawing, table);
      ShadeWithTable(drawing, table, begin, end, list, frame);
    } else {
      ShadeRange<Shape::kPlane>(drawing, begin, end, list, frame);
    }
  }
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
