// Colours of pixels from the triangle visible in each. Included once per
// instruction set.
#include "env/renderer/raycast/facet-inl.h"
#include "env/renderer/raycast/sampling-inl.h"
#include "env/renderer/raycast/shadow-inl.h"

#if defined(REPLICANT_RAYCAST_SHADE_TRIANGLE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_SHADE_TRIANGLE_INL_H_
#undef REPLICANT_RAYCAST_SHADE_TRIANGLE_INL_H_
#else
#define REPLICANT_RAYCAST_SHADE_TRIANGLE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// Settings for drawing a list of pixels.
struct Drawing {
  const Snapshot* snapshot;
  const Tables* tables;
  const Primitive* primitive;
  LocalRays rays;
  UnitRays unit_rays;
  LocalScene scene;
  // one per light with shadow; null when all lights shine in one pass
  std::vector<Casters>* casters;
};

// Positions of a vector of pixels: coordinates of the top left corner, and of
// the point that selects the triangle: the centre of a fully covered pixel,
// else the first covered sample.
struct PixelPlaces {
  Float x, y, sample_x, sample_y;
  bool are_centers;  // all samples' places
};

HWY_INLINE PixelPlaces FindPlaces(Int pixels, Int samples) {
  const Float x = ToFloat(hn::And(pixels, hn::Set(kInt, 0xFFFF)));
  const Float y = ToFloat(hn::ShiftRight<16>(pixels));
  const Float half = Set(0.5f);
  const Mask is_full = IntEqual(samples, hn::Set(kInt, kAllSamples));
  if (hn::AllTrue(kFloat, is_full)) return {x, y, x + half, y + half, true};
  Float dx = half;
  Float dy = half;
  for (size_t s = kNumSamples; s-- > 0;) {
    const Mask is_covered = hn::RebindMask(
        kFloat,
        hn::Gt(hn::And(samples, hn::Set(kInt, 1 << s)), hn::Zero(kInt)));
    dx = If(is_covered, Set(kFourSamples.x[s]), dx);
    dy = If(is_covered, Set(kFourSamples.y[s]), dy);
  }
  return {x, y, x + If(is_full, half, dx), y + If(is_full, half, dy), false};
}

// A triangle's plane, and blends between its corners.
struct TrianglePlane {
  Vec3 corner, edge1, edge2;
  Vec3 normal;          // edge1 x edge2
  Vec3 outward;         // the same, out of the shape
  Float inverse_area2;  // 1 / normal^2
};

// `is_wound`: the corners stand counter-clockwise, seen from outside; otherwise
// the normals tell where that is.
HWY_INLINE TrianglePlane MakePlane(const Triangle& t, bool is_wound) {
  TrianglePlane plane;
  plane.corner = t.corner[0];
  plane.edge1 = t.corner[1] - t.corner[0];
  plane.edge2 = t.corner[2] - t.corner[0];
  plane.normal = Cross(plane.edge1, plane.edge2);
  plane.inverse_area2 =
      Set(1.0f) / hn::Max(Dot(plane.normal, plane.normal), Set(1e-36f));
  plane.outward = plane.normal;
  if (is_wound) return plane;
  const Vec3 out = t.normal[0] + t.normal[1] + t.normal[2];
  const Mask is_inward = Dot(plane.normal, out) < Zero();
  plane.outward = plane.normal * If(is_inward, Set(-1.0f), Set(1.0f));
  return plane;
}

// The point where the ray through (x, y) hits the plane of a triangle, which is
// `height` over the rays' origin; `fallback` if the ray does not hit its front
// at a sufficient angle.
HWY_INLINE Vec3 MeetPlane(const TrianglePlane& plane, Float height,
                          const LocalRays& rays, Float x, Float y,
                          Vec3 fallback) {
  Vec3 start = Set(rays.origin);
  Vec3 direction = rays.At(x, y);
  Float slope = Dot(plane.outward, direction);
  if (rays.are_parallel) {
    height = height - slope;
    start = start + direction;
    direction = Set(rays.forward);
    slope = Dot(plane.outward, direction);
  }
  const Mask is_front = hn::And(slope < Zero(), height < Zero());
  const Float t = height / If(is_front, slope, Set(-1.0f));
  const Vec3 point = Fma(direction, t, start);
  // points far outside the scene do not matter
  const Mask is_near = t < Set(1e6f);
  return If(hn::And(is_front, is_near), point, fallback);
}

// Weights of corners 1 and 2 at a point of the plane; outside the triangle the
// colours are extrapolated, as OpenGL's are at a pixel's centre.
HWY_INLINE void Shares(const TrianglePlane& plane, Vec3 point, Float* share1,
                       Float* share2) {
  const Vec3 v = point - plane.corner;
  *share1 = Dot(Cross(v, plane.edge2), plane.normal) * plane.inverse_area2;
  *share2 = Dot(Cross(plane.edge1, v), plane.normal) * plane.inverse_area2;
}

// Texture coordinates and their change from pixel to pixel.
struct TexturePoint {
  Vec3 place, dx, dy;
};

// The texture points of a vector of pixel centres. Neighbours within an aligned
// square of two by two pixels, counted from the bottom row, share their
// differences, as in OpenGL. `find(x, y)` is the point of the surface at
// picture coordinates (x, y), in local coordinates or those of its corners.
template <typename Find>
HWY_INLINE TexturePoint FindTexturePoint(const Drawing& drawing,
                                         const PixelPlaces& at, Vec3 center,
                                         const Find& find) {
  const Primitive& p = *drawing.primitive;
  const Vec3 scale = Set(p.texture_scale);
  const Float last_row = Set(static_cast<float>(drawing.snapshot->height - 1));
  const Float half = Set(0.5f);
  const auto even = [&](Float v)
                        HWY_ATTR { return hn::Floor(v * half) * Set(2.0f); };
  const Float x0 = even(at.x) + half;
  // rows from the bottom
  const Float y0 = last_row - even(last_row - at.y) + half;
  const Vec3 origin = find(x0, y0) * scale;
  return {center * scale, find(x0 + Set(1.0f), y0) * scale - origin,
          find(x0, y0 - Set(1.0f)) * scale - origin};
}

HWY_INLINE FlatPlace FindFlatPlace(const Primitive& p, const TexturePoint& at) {
  return FindFlatPlace(*p.texture, at.place.x + Set(p.texture_offset[0]),
                       at.place.y + Set(p.texture_offset[1]), at.dx.x, at.dx.y,
                       at.dy.x, at.dy.y);
}

// Colour of `texture`, the primitive's or its alpha.
HWY_INLINE Color TextureColor(const Primitive& p, const Texture& texture,
                              const TexturePoint& at) {
  if (texture.is_cube) {
    return SampleCube(texture, at.place + Set(p.texture_offset), at.dx, at.dy);
  }
  const FlatPlace flat = FindFlatPlace(p, at);
  return Filtered(texture, flat.mip, hn::Zero(kInt), flat.s, flat.t);
}

// Where a vector of pixels hits a shape, on the sample's own ray.
template <Shape kShape>
HWY_INLINE Vec3 FindHit(const Drawing& drawing, const PixelPlaces& at) {
  const Primitive& p = *drawing.primitive;
  const UnitRays& unit = drawing.unit_rays;
  const Vec3s<1> fan{unit.At(at.sample_x, at.sample_y)};
  const Float nearness =
      (unit.are_parallel ? ParallelNearness<kShape>(p, unit, fan)
                         : Nearness<kShape>(p, Set(unit.origin), fan))[0];
  // the centre of a pixel may miss the shape by rounding: any point will do
  const Float t = Set(1.0f) / hn::Max(nearness, Set(1e-6f));
  const RayLanes ray = drawing.rays.Through(at.sample_x, at.sample_y);
  return Fma(ray.direction, t, ray.start);
}

// Triangles of a mesh or height field by number.
HWY_INLINE Triangle LoadTriangle(const Primitive& p, Int index) {
  const TriangleSet& set = *p.triangles;
  const Int at = index * hn::Set(kInt, TriangleSet::kStride);
  const Int at_texture = index * hn::Set(kInt, TriangleSet::kTextureStride);
  Triangle triangle;
  for (size_t k = 0; k < 3; ++k) {
    const float* corner = set.corners() + 3 * k;
    triangle.corner[k] = {Gather(corner, at), Gather(corner + 1, at),
                          Gather(corner + 2, at)};
    const float* normal = set.normals() + 3 * k;
    triangle.normal[k] = Normalized(
        {Gather(normal, at), Gather(normal + 1, at), Gather(normal + 2, at)});
    triangle.s[k] = triangle.t[k] = Zero();
    if (!p.has_corner_coordinates) continue;
    const float* texture = set.texture_coordinates() + 2 * k;
    triangle.s[k] = Gather(texture, at_texture);
    triangle.t[k] = Gather(texture + 1, at_texture);
  }
  return triangle;
}

// What fog leaves of a colour at a local point. Rarely needed.
inline HWY_NOINLINE HWY_ATTR Color FoggedAt(const LocalScene& scene, Vec3 point,
                                            bool is_added, Color color) {
  const Float depth = Dot(point - Set(scene.eye), Set(scene.forward));
  return Fogged(*scene.fog, hn::Abs(depth), is_added, color);
}

// What a vector of pixels sees of a primitive.
struct SeenSurface {
  Vec3 center;  // at the pixels' centres, local
  Color texture;
  // where the texture passes the alpha test of lights with shadow
  Mask is_opaque;
  // faces at equal depth: the pass of such a light adds all of them
  Int layers;
};

// Adds up the passes. `blend(pass, index, light)` gives the colour of pass
// number `index`, with light number `light`, without the texture.
// `may_shade(footprint)` filters the casters. `is_turned_away(light)` tells
// where the primitive itself shades a light's ambient part.
template <typename Blend, typename MayShade, typename IsTurnedAway>
HWY_INLINE Bytes AddPasses(const Drawing& drawing, const SeenSurface& seen,
                           const Blend& blend, const MayShade& may_shade,
                           const IsTurnedAway& is_turned_away) {
  const LocalScene& scene = drawing.scene;
  const bool has_fog = scene.fog != nullptr;
  if (drawing.casters == nullptr) {
    Color color = blend(Pass::kAll, 0, 0) * seen.texture;
    if (has_fog)
      color = FoggedAt(scene, seen.center, /*is_added=*/false, color);
    return ToBytes(color);
  }
  const Primitive& p = *drawing.primitive;
  Color color = blend(Pass::kShadowless, 0, 0) * seen.texture;
  if (has_fog) color = FoggedAt(scene, seen.center, /*is_added=*/false, color);
  Bytes bytes = ToBytes(color);
  const Vec3 world = Rotate(p.rotation, seen.center) + Set(p.position);
  const Int limit = hn::Set(kInt, 255);
  int index = 0;
  for (const Casters& casters : *drawing.casters) {
    ++index;
    const auto light =
        static_cast<int>(casters.light - drawing.snapshot->lights.data());
    color = blend(Pass::kOneLight, index, light) * seen.texture;
    if (has_fog) color = FoggedAt(scene, seen.center, /*is_added=*/true, color);
    const Bytes more = ToBytes(color);
    // where there is no light there is no shadow
    const Int any = hn::Or(more.r, hn::Or(more.g, more.b));
    Mask is_bright = hn::And(
        seen.is_opaque, hn::RebindMask(kFloat, hn::Gt(any, hn::Zero(kInt))));
    if (const LocalLight& local = scene.lights[static_cast<size_t>(light)];
        local.has_ambient) {
      is_bright = hn::AndNot(is_turned_away(local), is_bright);
    }
    if (hn::AllFalse(kFloat, is_bright)) continue;
    const auto is_lit = hn::RebindMask(
        kInt, IsLit(*drawing.snapshot, casters, world, is_bright, may_shade));
    bytes.r = hn::Min(
        bytes.r + hn::IfThenElseZero(is_lit, more.r * seen.layers), limit);
    bytes.g = hn::Min(
        bytes.g + hn::IfThenElseZero(is_lit, more.g * seen.layers), limit);
    bytes.b = hn::Min(
        bytes.b + hn::IfThenElseZero(is_lit, more.b * seen.layers), limit);
  }
  return bytes;
}

// Local coordinates as display lists have them: there the caps of a capsule are
// as high as its half length, so that a cube texture is stretched on them.
HWY_INLINE Vec3 ListPoint(const Primitive& p, const Triangle& triangle,
                          Vec3 point) {
  if (p.shape != Shape::kCapsule) return point;
  const Float half_length = Set(p.size[2]);
  const Float middle =
      (triangle.corner[0].z + triangle.corner[1].z + triangle.corner[2].z) *
      Set(1.0f / 3);
  const Mask is_cap = hn::Abs(middle) > half_length;
  const Float above = point.z - hn::CopySign(half_length, middle);
  const Float stretched = Fma(above, Set(p.size[2] / p.size[0] - 1), point.z);
  return {point.x, point.y, If(is_cap, stretched, point.z)};
}

// Shades pixels that show one triangle each. Inlined for each shape it would be
// two fifths of the compiler's time for this library.
inline HWY_NOINLINE HWY_ATTR Bytes ShadeTriangle(const Drawing& drawing,
                                                 const PixelPlaces& at,
                                                 const Triangle& triangle,
                                                 Int layers, Vec3 hit) {
  const TrianglePlane plane =
      MakePlane(triangle, drawing.primitive->shape == Shape::kTriangles);
  const Float height =
      Dot(plane.outward, plane.corner - Set(drawing.rays.origin));
  const auto meet = [&](Float x, Float y, Vec3 fallback) HWY_ATTR {
    return MeetPlane(plane, height, drawing.rays, x, y, fallback);
  };
  const Float half = Set(0.5f);
  const Vec3 center = meet(at.x + half, at.y + half, hit);
  Float share1, share2;
  Shares(plane, center, &share1, &share2);
  Color texture = Set(Float3{1, 1, 1});
  Mask is_opaque = Zero() == Zero();
  if (const Primitive& p = *drawing.primitive; p.texture != nullptr) {
    const auto coordinates = [&](Vec3 point) HWY_ATTR {
      if (!p.has_corner_coordinates) return ListPoint(p, triangle, point);
      Float toward1, toward2;
      Shares(plane, point, &toward1, &toward2);
      const auto blend = [&](const Float* c) HWY_ATTR {
        return Fma(c[2] - c[0], toward2, Fma(c[1] - c[0], toward1, c[0]));
      };
      return Vec3{blend(triangle.s), blend(triangle.t), Zero()};
    };
    const TexturePoint point = FindTexturePoint(
        drawing, at, coordinates(center), [&](Float x, Float y) HWY_ATTR {
          return coordinates(meet(x, y, center));
        });
    texture = TextureColor(p, *p.texture, point);
    if (p.texture->alpha != nullptr) {
      // 0.99 in 8 bits, as in llvmpipe
      is_opaque =
          TextureColor(p, *p.texture->alpha, point).x >= Set(251.5f / 255.0f);
    }
  }

  const LocalScene& scene = drawing.scene;
  std::array<SurfacePoint, 3> corners;
  for (size_t k = 0; k < 3; ++k) {
    corners[k] = {triangle.corner[k], triangle.normal[k],
                  Normalized(Set(scene.eye) - triangle.corner[k])};
  }
  const auto blend = [&](Pass pass, int /*index*/, int light) HWY_ATTR {
    const auto c = CornerColors(scene, pass, light, corners);
    return Fma(c[2] - c[0], share2, Fma(c[1] - c[0], share1, c[0]));
  };
  const auto may_shade = [](const Footprint& /*print*/) { return true; };
  // meshes find their own shadow by rays, and a plane casts none on itself
  const Shape shape = drawing.primitive->shape;
  const bool is_convex = shape != Shape::kTriangles && shape != Shape::kPlane;
  const auto is_turned_away = [&](const LocalLight& light) HWY_ATTR {
    const Float3& d = light.direction;
    const Vec3 to_light = light.light->is_directional
                              ? Set(Float3{-d[0], -d[1], -d[2]})
                              : Set(light.position) - center;
    return Dot(plane.outward, to_light) <= Set(is_convex ? 0.0f : -kMiss);
  };
  return AddPasses(drawing, {center, texture, is_opaque, layers}, blend,
                   may_shade, is_turned_away);
}

// Shades the vector of the list that begins at pixel `i`; corners are lit for
// each pixel.
template <Shape kShape>
HWY_INLINE Bytes ShadePixels(const Drawing& drawing, const PixelList& list,
                             size_t i) {
  const PixelPlaces at = FindPlaces(hn::LoadU(kInt, list.pixels.data() + i),
                                    hn::LoadU(kInt, list.samples.data() + i));
  const Primitive& p = *drawing.primitive;
  if constexpr (kShape == Shape::kTriangles) {
    const Int index = hn::LoadU(kInt, list.triangles.data() + i);
    const Triangle t = LoadTriangle(p, index);
    const std::vector<int32_t>& layers = p.triangles->layers();
    return ShadeTriangle(
        drawing, at, t,
        layers.empty() ? hn::Set(kInt, 1)
                       : hn::GatherIndex(kInt, layers.data(), index),
        (t.corner[0] + t.corner[1] + t.corner[2]) * Set(1.0f / 3));
  } else {
    const Vec3 hit = FindHit<kShape>(drawing, at);
    return ShadeTriangle(drawing, at,
                         FindTriangle<kShape>(*drawing.tables, p, hit),
                         hn::Set(kInt, 1), hit);
  }
}

HWY_INLINE void StoreShaded(Bytes bytes, size_t i, Frame& frame) {
  hn::StoreU(Pack(bytes), kInt,
             reinterpret_cast<int32_t*>(frame.shaded.data()) + i);
}

template <Shape kShape>
HWY_ATTR void ShadeRange(const Drawing& drawing, size_t begin, size_t end,
                         const PixelList& list, Frame& frame) {
  for (size_t i = begin; i < end; i += NumLanes()) {
    StoreShaded(ShadePixels<kShape>(drawing, list, i), i, frame);
  }
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
