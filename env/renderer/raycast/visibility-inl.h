// Finds the primitive that each sample of the picture sees. Included once per
// instruction set.
#include <algorithm>
#include <tuple>
#include <vector>

#include "env/renderer/raycast/intersect-inl.h"

#if defined(REPLICANT_RAYCAST_VISIBILITY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_VISIBILITY_INL_H_
#undef REPLICANT_RAYCAST_VISIBILITY_INL_H_
#else
#define REPLICANT_RAYCAST_VISIBILITY_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// One pass over the picture: directly, or through the mirror.
enum class Layer { kDirect, kMirrored };

// Rows [y0, y1) of the picture.
struct Band {
  int y0, y1;

  // The part of `rect` in the band, starting at a whole vector.
  ScreenRect Cut(const ScreenRect& rect) const {
    if (rect.empty()) return {};
    return {rect.x0 - rect.x0 % static_cast<int>(NumLanes()),
            std::max(rect.y0, y0), rect.x1, std::min(rect.y1, y1)};
  }
  // Index of pixel (x, y) in arrays of a band.
  size_t Place(const Frame& frame, int x, int y) const {
    return static_cast<size_t>(y - y0) * frame.stride + static_cast<size_t>(x);
  }
};

// A primitive and the rays that may hit it.
struct Target {
  const Snapshot* snapshot;
  const Primitive* primitive;
  UnitRays rays;
  Origin origin;
  bool may_meet_sky;

  HWY_INLINE Target(const Snapshot& scene, size_t index, const UnitRays& unit,
                    Layer layer)
      : snapshot(&scene),
        primitive(&scene.primitives[index]),
        rays(unit),
        origin(Set(unit.origin)),
        may_meet_sky(layer == Layer::kDirect && primitive->may_meet_sky) {}

  // 1 / depth of the samples of pixels from (x, y) on; 0 or less where the
  // primitive is not seen.
  template <Shape kShape>
  HWY_INLINE Floats<kNumSamples> Look(int x, int y) const {
    Vec3s<kNumSamples> d;
    Floats<kNumSamples> at_x, at_y;
    const Float column = ToFloat(CountFrom(x));
    for (size_t s = 0; s < kNumSamples; ++s) {
      at_x[s] = column + Set(snapshot->samples->x[s]);
      at_y[s] = Set(static_cast<float>(y) + snapshot->samples->y[s]);
      d[s] = rays.Direction(at_x[s], at_y[s]);
    }
    Floats<kNumSamples> nearness = Nearness<kShape>(*primitive, origin, d);
    if (!may_meet_sky) return nearness;
    for (size_t s = 0; s < kNumSamples; ++s) {
      nearness[s] = BeforeSky(at_x[s], at_y[s], nearness[s]);
    }
    return nearness;
  }

  // `nearness`, but 0 where the sky is nearer: a ray hits the sky at that
  // distance across or up.
  HWY_INLINE Float BeforeSky(Float x, Float y, Float nearness) const {
    const Rays& world = snapshot->rays;
    const Vec3 ray =
        Fma(Set(world.per_x), x, Fma(Set(world.per_y), y, Set(world.base)));
    const Float reach = nearness * Set(snapshot->sky_distance);
    const Float across2 = Fma(ray.y, ray.y, ray.x * ray.x);
    const Mask is_before =
        hn::And(hn::Abs(ray.z) <= reach, across2 <= reach * reach);
    return hn::IfThenElseZero(is_before, nearness);
  }
};

// Writes primitive `index` to the samples in `rect` where it is nearest. At
// equal depth a later primitive wins, as with OpenGL's GL_GEQUAL.
template <Shape kShape, Layer kLayer>
HWY_ATTR void CoverShape(const Target& target, int index, const Band& band,
                         const ScreenRect& rect, Frame& frame) {
  SeenSamples& seen = kLayer == Layer::kDirect ? frame.direct : frame.mirrored;
  const Int id = hn::Set(kInt, index);
  const Float nearest = Set(1.0f / target.snapshot->near_depth);
  const auto lanes = static_cast<int>(NumLanes());
  for (int y = rect.y0; y < rect.y1; ++y) {
    for (int x = rect.x0; x < rect.x1; x += lanes) {
      const size_t at = band.Place(frame, x, y);
      const Floats<kNumSamples> nearness = target.Look<kShape>(x, y);
      Floats<kNumSamples> old;
      std::array<Mask, kNumSamples> is_nearer;
      for (size_t s = 0; s < kNumSamples; ++s) {
        old[s] = hn::LoadU(kFloat, seen.nearness[s].data() + at);
        // the mirror shows only objects in front of it; they lie beyond it on
        // the mirrored ray
        const Float limit =
            kLayer == Layer::kDirect
                ? nearest
                : hn::LoadU(kFloat, frame.direct.nearness[s].data() + at);
        is_nearer[s] = hn::And(nearness[s] >= old[s], nearness[s] <= limit);
      }
      if (IsNone(is_nearer)) continue;
      for (size_t s = 0; s < kNumSamples; ++s) {
        hn::StoreU(If(is_nearer[s], nearness[s], old[s]), kFloat,
                   seen.nearness[s].data() + at);
        int32_t* id_at = seen.id[s].data() + at;
        hn::StoreU(If(is_nearer[s], id, hn::LoadU(kInt, id_at)), kInt, id_at);
      }
    }
  }
}

// As above, for triangles, whose number is kept. Triangles may be smaller than
// a pixel: the rays of a vector come from few pixels, with all samples of each,
// so that they traverse the same part of the tree.
template <Layer kLayer>
HWY_ATTR void CoverTriangles(const Target& target, int index, const Band& band,
                             const ScreenRect& rect, Frame& frame) {
  SeenSamples& seen = kLayer == Layer::kDirect ? frame.direct : frame.mirrored;
  const TriangleSet& set = *target.primitive->triangles;
  const float nearest = 1.0f / target.snapshot->near_depth;
  const int pixels = std::max(1, static_cast<int>(NumLanes()) / kNumSamples);
  std::array<float, hn::MaxLanes(kFloat)> nearness;
  std::array<int32_t, hn::MaxLanes(kInt)> triangle;
  const auto look = [&](int x, int y, size_t first) HWY_ATTR {
    const Float at_x =
        hn::LoadU(kFloat, target.snapshot->samples->spread_x.data() + first) +
        Set(static_cast<float>(x));
    const Float at_y =
        hn::LoadU(kFloat, target.snapshot->samples->spread_y.data() + first) +
        Set(static_cast<float>(y));
    const TriangleHits hits = FindTriangles<false>(
        set, target.origin.at, target.rays.Direction(at_x, at_y), Zero(),
        Set(kMiss));
    const Float near =
        hn::IfThenElseZero(hits.t < Set(kMiss), Set(1.0f) / hits.t);
    hn::StoreU(target.may_meet_sky ? target.BeforeSky(at_x, at_y, near) : near,
               kFloat, nearness.data());
    hn::StoreU(hits.index, kInt, triangle.data());
  };
  const auto keep = [&](size_t lane, size_t s, size_t at) {
    float& old = seen.nearness[s].data()[at];
    const float limit = kLayer == Layer::kDirect
                            ? nearest
                            : frame.direct.nearness[s].data()[at];
    if (!(nearness[lane] >= old && nearness[lane] <= limit)) return;
    old = nearness[lane];
    seen.id[s].data()[at] = index;
    seen.triangle[s].data()[at] = triangle[lane];
  };
  for (int y = rect.y0; y < rect.y1; ++y) {
    for (int x = rect.x0; x < rect.x1; x += pixels) {
      const size_t at = band.Place(frame, x, y);
      // one vector, or several if it is shorter than a pixel's samples
      for (size_t first = 0; first < kNumSamples; first += NumLanes()) {
        look(x, y, first);
        for (size_t lane = 0; lane < NumLanes(); ++lane) {
          const size_t i = first + lane;
          keep(lane, i % kNumSamples, at + i / kNumSamples);
        }
      }
    }
  }
}

template <Layer kLayer>
HWY_ATTR void Cover(const Target& target, int index, const Band& band,
                    const ScreenRect& rect, Frame& frame) {
  VisitShape(target.primitive->shape, [&](auto shape) HWY_ATTR {
    if constexpr (shape() == Shape::kTriangles) {
      CoverTriangles<kLayer>(target, index, band, rect, frame);
    } else {
      CoverShape<shape(), kLayer>(target, index, band, rect, frame);
    }
  });
}

// Appends the lanes whose `samples` are not zero to the list; `triangles` may
// be null.
HWY_INLINE void AppendNonZero(Int samples, Int pixel, const int32_t* triangles,
                              PixelList& list) {
  const auto is_covered = hn::Gt(samples, hn::Zero(kInt));
  if (triangles != nullptr) {
    StoreChosen(is_covered, hn::LoadU(kInt, triangles),
                list.triangles.data() + list.count);
  }
  StoreChosen(is_covered, samples, list.samples.data() + list.count);
  list.count += StoreChosen(is_covered, pixel, list.pixels.data() + list.count);
}

// How the samples of a primitive's pixels are listed.
enum class Listing {
  // all samples of a pixel together: the mirror has one colour per pixel, and
  // its reflection is added to that
  kPerPixel,
  // a partly covered pixel once per sample: at an edge the samples lie on
  // triangles that look different
  kPerSample,
  // the same if a pixel's samples see several triangles
  kPerTriangle,
};

inline Listing ListingOf(const Snapshot& snapshot, size_t index) {
  if (snapshot.primitives[index].shape == Shape::kTriangles) {
    return Listing::kPerTriangle;
  }
  return static_cast<int>(index) == snapshot.mirror ? Listing::kPerPixel
                                                    : Listing::kPerSample;
}

// Appends the pixels of a vector; `seen` has their triangles at `at`.
HWY_INLINE void Append(Int samples, int x, int y, Listing listing,
                       const SeenSamples& seen, size_t at, PixelList& list) {
  if (hn::AllTrue(kInt, hn::Eq(samples, hn::Zero(kInt)))) return;
  const Int pixel = CountFrom((y << 16) | x);
  if (listing == Listing::kPerPixel) {
    return AppendNonZero(samples, pixel, nullptr, list);
  }
  std::array<const int32_t*, kNumSamples> triangles{};
  auto is_full = hn::Eq(samples, hn::Set(kInt, kAllSamples));
  if (listing == Listing::kPerTriangle) {
    for (size_t s = 0; s < kNumSamples; ++s) {
      triangles[s] = seen.triangle[s].data() + at;
      is_full = hn::And(is_full, hn::Eq(hn::LoadU(kInt, triangles[0]),
                                        hn::LoadU(kInt, triangles[s])));
    }
  }
  AppendNonZero(hn::IfThenElseZero(is_full, samples), pixel, triangles[0],
                list);
  const Int partial = hn::IfThenZeroElse(is_full, samples);
  if (hn::AllTrue(kInt, hn::Eq(partial, hn::Zero(kInt)))) return;
  for (size_t s = 0; s < kNumSamples; ++s) {
    AppendNonZero(hn::And(partial, hn::Set(kInt, 1 << s)), pixel, triangles[s],
                  list);
  }
}

// Pixels to be listed, and where.
struct ListedPixels {
  ScreenRect rect;
  Listing listing;
  const SeenSamples& seen;
  PixelList& list;
};

// Appends the pixels with their visible samples; `find_seen(x, y, place)` gives
// a bit for each.
template <typename FindSeen>
HWY_INLINE void AppendSeen(const Snapshot& snapshot, const Band& band,
                           const Frame& frame, const ListedPixels& pixels,
                           const FindSeen& find_seen) {
  const ScreenRect& rect = pixels.rect;
  if (rect.empty()) return;
  pixels.list.Reserve(static_cast<size_t>(kNumSamples) *
                      static_cast<size_t>(rect.y1 - rect.y0) * frame.stride);
  const auto lanes = static_cast<int>(NumLanes());
  for (int y = rect.y0; y < rect.y1; ++y) {
    for (int x = rect.x0; x < rect.x1; x += lanes) {
      const size_t at = band.Place(frame, x, y);
      const Int samples = find_seen(x, y, at);
      // lanes right of the picture hold leftovers
      const auto is_inside =
          hn::Lt(CountFrom(x), hn::Set(kInt, snapshot.width));
      Append(hn::IfThenElseZero(is_inside, samples), x, y, pixels.listing,
             pixels.seen, at, pixels.list);
    }
  }
}

// A bit for every sample for which `is_seen(sample)` holds.
template <typename IsSeen>
HWY_INLINE Int SampleBits(const IsSeen& is_seen) {
  Int bits = hn::Zero(kInt);
  for (size_t s = 0; s < kNumSamples; ++s) {
    bits = hn::Or(bits, hn::IfThenElseZero(is_seen(s), hn::Set(kInt, 1 << s)));
  }
  return bits;
}

// Lists the pixels in which primitive `index` is seen directly.
inline HWY_ATTR void ListDirect(const Snapshot& snapshot, size_t index,
                                const Band& band, Frame& frame) {
  const Int id = hn::Set(kInt, static_cast<int32_t>(index));
  AppendSeen(
      snapshot, band, frame,
      {band.Cut(snapshot.primitives[index].rect), ListingOf(snapshot, index),
       frame.direct, frame.direct_lists[index]},
      [&](int /*x*/, int /*y*/, size_t at) HWY_ATTR {
        return SampleBits([&](size_t s) HWY_ATTR {
          return hn::Eq(hn::LoadU(kInt, frame.direct.id[s].data() + at), id);
        });
      });
}

// The samples in which the mirror is visible: of a box, its upper side.
HWY_INLINE hn::Mask<IntTag> ShowsMirror(const Snapshot& snapshot,
                                        const Frame& frame, int x, int y,
                                        size_t at, size_t s) {
  const auto is_mirror = hn::Eq(hn::LoadU(kInt, frame.direct.id[s].data() + at),
                                hn::Set(kInt, snapshot.mirror));
  if (!snapshot.is_box_mirror()) return is_mirror;
  const Rays& rays = snapshot.rays;
  const Vec3 d = Fma(
      Set(rays.per_x), ToFloat(CountFrom(x)) + Set(snapshot.samples->x[s]),
      Fma(Set(rays.per_y), Set(static_cast<float>(y) + snapshot.samples->y[s]),
          Set(rays.base)));
  float height = 0;
  for (size_t i = 0; i < 3; ++i) {
    height += (snapshot.mirror_position[i] - rays.origin[i]) *
              snapshot.mirror_normal[i];
  }
  const Float nearness =
      Dot(d, Set(snapshot.mirror_normal)) * SafeInverse(Set(height));
  const Float seen = hn::LoadU(kFloat, frame.direct.nearness[s].data() + at);
  return hn::And(is_mirror,
                 hn::RebindMask(kInt, hn::Abs(nearness - seen) <=
                                          Set(1e-4f) * hn::Abs(nearness)));
}

// Lists the pixels in which primitive `index` is seen in the mirror, where the
// mirror itself is visible.
inline HWY_ATTR void ListMirrored(const Snapshot& snapshot, size_t index,
                                  const Band& band, Frame& frame) {
  const Int id = hn::Set(kInt, static_cast<int32_t>(index));
  AppendSeen(
      snapshot, band, frame,
      {band.Cut(snapshot.primitives[index].mirrored_rect),
       ListingOf(snapshot, index), frame.mirrored, frame.mirrored_lists[index]},
      [&](int x, int y, size_t at) HWY_ATTR {
        return SampleBits([&](size_t s) HWY_ATTR {
          return hn::And(
              ShowsMirror(snapshot, frame, x, y, at, s),
              hn::Eq(hn::LoadU(kInt, frame.mirrored.id[s].data() + at), id));
        });
      });
}

// The part of the rays in which a transparent primitive can be seen: behind
// what hides it, from the near plane or the mirror on.
template <Layer kLayer>
struct ClearSight {
  const Snapshot& snapshot;
  const Frame& frame;

  const ScreenRect& RectOf(const Primitive& p) const {
    return kLayer == Layer::kDirect ? p.rect : p.mirrored_rect;
  }
  const SeenSamples& seen() const {
    return kLayer == Layer::kDirect ? frame.direct : frame.mirrored;
  }
  HWY_INLINE hn::Mask<IntTag> Shows(Float nearness, int x, int y, size_t at,
                                    size_t s) const {
    const Float behind = hn::LoadU(kFloat, seen().nearness[s].data() + at);
    const Float limit =
        kLayer == Layer::kDirect
            ? Set(1.0f / snapshot.near_depth)
            : hn::LoadU(kFloat, frame.direct.nearness[s].data() + at);
    const auto is_between = hn::RebindMask(
        kInt, hn::And(hn::And(nearness >= behind, nearness <= limit),
                      nearness > Zero()));
    if constexpr (kLayer == Layer::kDirect) return is_between;
    return hn::And(is_between, ShowsMirror(snapshot, frame, x, y, at, s));
  }
};

// Lists the triangles that the samples of some pixels see, one after the other
// as OpenGL draws them: where a mesh is not convex, several triangles of it
// face the camera.
inline void ListHits(Frame& frame, PixelList& list) {
  std::vector<TriangleHit>& hits = frame.hits;
  std::sort(hits.begin(), hits.end(),
            [](const TriangleHit& a, const TriangleHit& b) {
              return std::tie(a.pixel, a.order, a.sample) <
                     std::tie(b.pixel, b.order, b.sample);
            });
  list.Reserve(hits.size());
  for (size_t i = 0; i < hits.size(); ++i) {
    const TriangleHit& hit = hits[i];
    if (i > 0 && hits[i - 1].pixel == hit.pixel &&
        hits[i - 1].triangle == hit.triangle) {
      list.samples[list.count - 1] |= hit.sample;
      continue;
    }
    list.pixels[list.count] = hit.pixel;
    list.samples[list.count] = hit.sample;
    list.triangles[list.count++] = hit.triangle;
  }
  hits.clear();
}

template <Layer kLayer>
HWY_ATTR void ListTransparentTriangles(const Target& target, const Band& band,
                                       const ScreenRect& rect, Frame& frame,
                                       PixelList& list) {
  const TriangleSet& set = *target.primitive->triangles;
  const ClearSight<kLayer> sight{*target.snapshot, frame};
  const auto lanes = static_cast<int>(NumLanes());
  std::array<int32_t, hn::MaxLanes(kInt)> shown;
  for (int y = rect.y0; y < rect.y1; ++y) {
    for (int x = rect.x0; x < rect.x1; x += lanes) {
      const size_t at = band.Place(frame, x, y);
      for (size_t s = 0; s < kNumSamples; ++s) {
        const Float at_x =
            ToFloat(CountFrom(x)) + Set(target.snapshot->samples->x[s]);
        const Float at_y =
            Set(static_cast<float>(y) + target.snapshot->samples->y[s]);
        VisitTriangles(
            set, target.origin.at, target.rays.Direction(at_x, at_y),
            [&](Mask is_hit, int32_t triangle, Float t) HWY_ATTR {
              Float near = hn::IfThenElseZero(is_hit, Set(1.0f) / t);
              if (target.may_meet_sky)
                near = target.BeforeSky(at_x, at_y, near);
              hn::StoreU(hn::IfThenElseZero(sight.Shows(near, x, y, at, s),
                                            hn::Set(kInt, 1)),
                         kInt, shown.data());
              const int end = std::min(lanes, target.snapshot->width - x);
              for (int lane = 0; lane < end; ++lane) {
                if (shown[static_cast<size_t>(lane)] == 0) continue;
                frame.hits.push_back(
                    {(y << 16) | (x + lane),
                     set.order()[static_cast<size_t>(triangle)], triangle,
                     1 << s});
              }
            });
      }
      ListHits(frame, list);
    }
  }
}

// Lists the pixels that a transparent primitive covers in front of opaque
// ones.
template <Layer kLayer>
HWY_ATTR void ListTransparent(const Target& target, size_t index,
                              const Band& band, Frame& frame) {
  const Snapshot& snapshot = *target.snapshot;
  const ClearSight<kLayer> sight{snapshot, frame};
  const ScreenRect rect = band.Cut(sight.RectOf(*target.primitive));
  if (rect.empty()) return;
  PixelList& list = kLayer == Layer::kDirect ? frame.direct_lists[index]
                                             : frame.mirrored_lists[index];
  VisitShape(target.primitive->shape, [&](auto shape) HWY_ATTR {
    if constexpr (shape() == Shape::kTriangles) {
      ListTransparentTriangles<kLayer>(target, band, rect, frame, list);
    } else {
      AppendSeen(snapshot, band, frame,
                 {rect, Listing::kPerSample, sight.seen(), list},
                 [&](int x, int y, size_t at) HWY_ATTR {
                   const Floats<kNumSamples> nearness =
                       target.Look<shape()>(x, y);
                   return SampleBits([&](size_t s) HWY_ATTR {
                     return sight.Shows(nearness[s], x, y, at, s);
                   });
                 });
    }
  });
}

// Lists the pixels in the haze, and lets it hide what is transparent behind it.
// The haze is a cone about the plane's normal through the eye. On the side with
// the edge e, a ray d meets it at 1 / t = (d . e) / D - d_z slope, with D the
// distance of the sky.
inline HWY_ATTR void ListHaze(const Snapshot& snapshot, const Band& band,
                              Frame& frame) {
  const Haze& haze = snapshot.haze;
  const Rays& rays = snapshot.rays;
  const auto sides = static_cast<float>(haze.edge_x.size());
  // 1 / t, and the height as a part of the elevation
  struct Place {
    Float nearness, height;
  };
  const auto meet = [&](Float x, Float y) HWY_ATTR {
    const Vec3 d = Rotate(
        haze.to_plane,
        Fma(Set(rays.per_x), x, Fma(Set(rays.per_y), y, Set(rays.base))));
    constexpr float kTwoPi = 6.28318531f;
    const Int side = ToInt(Clamp(
        hn::Floor(Atan2(d.y, d.x) * Set(sides / kTwoPi)), 0.0f, sides - 1.0f));
    const Float along = Fma(d.y, Gather(haze.edge_y.data(), side),
                            d.x * Gather(haze.edge_x.data(), side));
    const Float nearness =
        NegFma(d.z, Set(haze.slope), along * Set(1.0f / snapshot.sky_distance));
    return Place{nearness, Fma(d.z * Set(1.0f / haze.elevation),
                               SafeInverse(nearness), Set(1.0f))};
  };
  std::array<int32_t, hn::MaxLanes(kInt)> samples;
  std::array<float, hn::MaxLanes(kFloat)> alpha;
  for (int y = band.y0; y < band.y1; ++y) {
    for (int x = 0; x < snapshot.width; x += static_cast<int>(NumLanes())) {
      const size_t at = band.Place(frame, x, y);
      const Float column = ToFloat(CountFrom(x));
      const auto row = static_cast<float>(y);
      const Int bits = SampleBits([&](size_t s) HWY_ATTR {
        const Place place = meet(column + Set(snapshot.samples->x[s]),
                                 Set(row + snapshot.samples->y[s]));
        float* seen = frame.direct.nearness[s].data() + at;
        const Float old = hn::LoadU(kFloat, seen);
        const Mask is_seen =
            hn::And(hn::And(place.nearness >= old,
                            place.nearness <= Set(1.0f / snapshot.near_depth)),
                    hn::And(place.height >= Zero(), place.height <= Set(1.0f)));
        hn::StoreU(If(is_seen, place.nearness, old), kFloat, seen);
        return hn::RebindMask(kInt, is_seen);
      });
      if (hn::AllTrue(kInt, hn::Eq(bits, hn::Zero(kInt)))) continue;
      const Float height = meet(column + Set(0.5f), Set(row + 0.5f)).height;
      const Float rising = height * Set(1 / haze.middle);
      const Float falling = (Set(1.0f) - height) * Set(1 / (1 - haze.middle));
      hn::StoreU(bits, kInt, samples.data());
      hn::StoreU(Clamp(hn::Min(rising, falling), 0, 1), kFloat, alpha.data());
      const auto end = static_cast<size_t>(
          std::min(static_cast<int>(NumLanes()), snapshot.width - x));
      for (size_t lane = 0; lane < end; ++lane) {
        if (samples[lane] == 0) continue;
        frame.haze.push_back({static_cast<size_t>(y) * frame.stride +
                                  static_cast<size_t>(x) + lane,
                              samples[lane], alpha[lane]});
      }
    }
  }
}

// Clears a band: nothing is seen yet.
inline HWY_ATTR void ClearSeen(const Snapshot& snapshot, const Band& band,
                               const Frame& frame, SeenSamples& seen) {
  const size_t size = static_cast<size_t>(band.y1 - band.y0) * frame.stride;
  const Float farthest = Set(1.0f / snapshot.far_depth);
  const Int nothing = hn::Set(kInt, -1);
  for (size_t s = 0; s < kNumSamples; ++s) {
    for (size_t i = 0; i < size; i += NumLanes()) {
      hn::StoreU(farthest, kFloat, seen.nearness[s].data() + i);
      hn::StoreU(nothing, kInt, seen.id[s].data() + i);
    }
  }
}

// Draws a band that contains no primitive.
inline HWY_ATTR void PutSkyAlone(const Snapshot& snapshot, const Sky& painted,
                                 const Band& band, Frame& frame) {
  const size_t begin = static_cast<size_t>(band.y0) * frame.stride;
  const size_t end = static_cast<size_t>(band.y1) * frame.stride;
  for (size_t i = begin; i < end; i += NumLanes()) {
    const Int sky = hn::LoadU(
        kInt, reinterpret_cast<const int32_t*>(painted.color.data()) + i);
    hn::StoreU(hn::ShiftLeft<2>(sky), kInt,
               reinterpret_cast<int32_t*>(frame.sum.data()) + i);
    if (!snapshot.keeps_samples()) continue;
    for (Lanes<uint32_t>& color : frame.color) {
      hn::StoreU(sky, kInt, reinterpret_cast<int32_t*>(color.data()) + i);
    }
  }
}

// Starts the picture with the sky, in the samples without a primitive.
inline HWY_ATTR void PutSky(const Snapshot& snapshot, const Sky& painted,
                            const Band& band, Frame& frame) {
  const size_t begin = static_cast<size_t>(band.y0) * frame.stride;
  const size_t size = static_cast<size_t>(band.y1 - band.y0) * frame.stride;
  const bool keeps_samples = snapshot.keeps_samples();
  const Int nothing = hn::Set(kInt, -1);
  for (size_t i = 0; i < size; i += NumLanes()) {
    const Int sky =
        hn::LoadU(kInt, reinterpret_cast<const int32_t*>(painted.color.data()) +
                            begin + i);
    Int total = hn::Zero(kInt);
    for (size_t s = 0; s < kNumSamples; ++s) {
      const Int id = hn::LoadU(kInt, frame.direct.id[s].data() + i);
      total = total + hn::IfThenElseZero(hn::Eq(id, nothing), sky);
      if (!keeps_samples) continue;
      hn::StoreU(sky, kInt,
                 reinterpret_cast<int32_t*>(frame.color[s].data()) + begin + i);
    }
    hn::StoreU(total, kInt,
               reinterpret_cast<int32_t*>(frame.sum.data()) + begin + i);
  }
}

// The rays of every primitive's coordinates.
struct Views {
  std::vector<UnitRays> direct, mirrored;
};

inline Views MakeViews(const Snapshot& snapshot) {
  Views views;
  views.direct.reserve(snapshot.primitives.size());
  views.mirrored.reserve(snapshot.primitives.size());
  for (const Primitive& p : snapshot.primitives) {
    views.direct.push_back(ToUnit(p, snapshot.rays));
    if (snapshot.mirror < 0) continue;
    views.mirrored.push_back(ToUnit(p, snapshot.mirrored_rays));
  }
  return views;
}

inline void FindMirrored(const Snapshot& snapshot, const Views& views,
                         const Band& band, Frame& frame) {
  const auto mirror = static_cast<size_t>(snapshot.mirror);
  ClearSeen(snapshot, band, frame, frame.mirrored);
  const auto for_each = [&](const auto& visit) {
    for (size_t k = 0; k < snapshot.primitives.size(); ++k) {
      const Primitive& p = snapshot.primitives[k];
      if (p.is_transparent || k == mirror) continue;
      const ScreenRect rect = band.Cut(p.mirrored_rect);
      if (!rect.empty()) visit(k, rect);
    }
  };
  for_each([&](size_t k, const ScreenRect& rect) {
    Cover<Layer::kMirrored>(
        Target(snapshot, k, views.mirrored[k], Layer::kMirrored),
        static_cast<int>(k), band, rect, frame);
  });
  for_each([&](size_t k, const ScreenRect& /*rect*/) {
    ListMirrored(snapshot, k, band, frame);
  });
  for (const int k : snapshot.transparent) {
    const auto index = static_cast<size_t>(k);
    ListTransparent<Layer::kMirrored>(
        Target(snapshot, index, views.mirrored[index], Layer::kMirrored), index,
        band, frame);
  }
}

// Lists the visible pixels of each primitive and draws the sky.
inline HWY_ATTR void FindVisible(const Snapshot& snapshot, const Views& views,
                                 const Sky& sky, Frame& frame) {
  const size_t num = snapshot.primitives.size();
  for (PixelList& list : frame.direct_lists) list.count = 0;
  for (PixelList& list : frame.mirrored_lists) list.count = 0;
  frame.haze.clear();
  for (int y = 0; y < snapshot.height; y += Frame::kBandRows) {
    const Band band{y, std::min(y + Frame::kBandRows, snapshot.height)};
    const bool is_empty =
        !snapshot.haze.is_seen &&
        std::all_of(
            snapshot.primitives.begin(), snapshot.primitives.end(),
            [&](const Primitive& p) { return band.Cut(p.rect).empty(); });
    if (is_empty) {
      PutSkyAlone(snapshot, sky, band, frame);
      continue;
    }
    ClearSeen(snapshot, band, frame, frame.direct);
    for (size_t k = 0; k < num; ++k) {
      const Primitive& p = snapshot.primitives[k];
      const ScreenRect rect = band.Cut(p.rect);
      if (p.is_transparent || rect.empty()) continue;
      Cover<Layer::kDirect>(
          Target(snapshot, k, views.direct[k], Layer::kDirect),
          static_cast<int>(k), band, rect, frame);
    }
    for (size_t k = 0; k < num; ++k) {
      if (!snapshot.primitives[k].is_transparent) {
        ListDirect(snapshot, k, band, frame);
      }
    }
    if (snapshot.mirror >= 0) {
      const auto mirror = static_cast<size_t>(snapshot.mirror);
      const PixelList& list = frame.direct_lists[mirror];
      const bool is_seen =
          list.count > 0 && list.pixels[list.count - 1] >> 16 >= y;
      if (is_seen) FindMirrored(snapshot, views, band, frame);
    }
    if (snapshot.haze.is_seen) ListHaze(snapshot, band, frame);
    for (const int k : snapshot.transparent) {
      const auto index = static_cast<size_t>(k);
      ListTransparent<Layer::kDirect>(
          Target(snapshot, index, views.direct[index], Layer::kDirect), index,
          band, frame);
    }
    PutSky(snapshot, sky, band, frame);
  }
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
