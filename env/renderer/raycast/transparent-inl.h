// Lists of the pixels that transparent primitives cover. Included once per
// instruction set.
#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include "env/renderer/raycast/list-inl.h"

#if defined(REPLICANT_RAYCAST_TRANSPARENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_TRANSPARENT_INL_H_
#undef REPLICANT_RAYCAST_TRANSPARENT_INL_H_
#else
#define REPLICANT_RAYCAST_TRANSPARENT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// The part of the rays in which a transparent primitive can be seen: behind
// what hides it, from the near plane or the mirror on.
struct ClearSight {
  const Snapshot& snapshot;
  const Frame& frame;
  Layer layer;
  MirrorView mirror{snapshot, frame};

  const ScreenRect& RectOf(const Primitive& p) const {
    return layer == Layer::kDirect ? p.rect : p.mirrored_rect;
  }
  const SeenSamples& seen() const {
    return layer == Layer::kDirect ? frame.direct : frame.mirrored;
  }
  HWY_INLINE hn::Mask<IntTag> Shows(Float nearness, int x, int y, size_t at,
                                    size_t s) const {
    const Float behind = hn::LoadU(kFloat, seen().nearness[s].data() + at);
    const Float limit =
        layer == Layer::kDirect
            ? Set(1.0f / snapshot.near_depth)
            : hn::LoadU(kFloat, frame.direct.nearness[s].data() + at);
    const auto is_between = hn::RebindMask(
        kInt, hn::And(hn::And(nearness >= behind, nearness <= limit),
                      nearness > Zero()));
    if (layer == Layer::kDirect) return is_between;
    return hn::And(is_between, mirror.Shows(x, y, at, s));
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

inline HWY_ATTR void ListTransparentTriangles(const Target& target,
                                              const ClearSight& sight,
                                              const Band& band,
                                              const ScreenRect& rect,
                                              Frame& frame, PixelList& list) {
  const TriangleSet& set = *target.primitive->triangles;
  PerSample<std::array<int32_t, hn::MaxLanes(kInt)>> is_mirror;
  std::array<int32_t, hn::MaxLanes(kInt)> is_shown;
  ForSamples(target, rect, [&](int x, int y, size_t first) HWY_ATTR {
    SampleRays samples(target, sight.layer, band, frame, x, y, first);
    if (sight.layer == Layer::kMirrored) {
      for (size_t s = 0; s < kNumSamples; ++s) {
        const auto shows = sight.mirror.Shows(x, y, band.Place(frame, x, y), s);
        hn::StoreU(hn::IfThenElseZero(shows, hn::Set(kInt, 1)), kInt,
                   is_mirror[s].data());
      }
      for (size_t lane = 0; lane < NumLanes(); ++lane) {
        const size_t i = first + lane;
        if (is_mirror[i % kNumSamples][i / kNumSamples] == 0) {
          samples.farthest[lane] = kMiss;
        }
      }
    }
    const Float nearest = hn::LoadU(kFloat, samples.nearest.data());
    const Float farthest = hn::LoadU(kFloat, samples.farthest.data());
    const RayLanes rays = target.rays.Through(samples.x, samples.y);
    VisitTriangles(
        set, rays.start, rays.direction, samples.Begin(), samples.End(),
        [&](Mask is_hit, int32_t triangle, Float t) HWY_ATTR {
          const Float near = samples.Nearness(target, is_hit, t);
          const Mask is_between = hn::And(
              hn::And(near >= farthest, near <= nearest), near > Zero());
          if (hn::AllFalse(kFloat, is_between)) return;
          hn::StoreU(hn::IfThenElseZero(hn::RebindMask(kInt, is_between),
                                        hn::Set(kInt, 1)),
                     kInt, is_shown.data());
          for (size_t lane = 0; lane < NumLanes(); ++lane) {
            const size_t i = first + lane;
            const int column = x + static_cast<int>(i / kNumSamples);
            if (is_shown[lane] == 0 || column >= target.snapshot->width) {
              continue;
            }
            frame.hits.push_back({(y << 16) | column,
                                  set.order()[static_cast<size_t>(triangle)],
                                  triangle, 1 << i % kNumSamples});
          }
        });
    if (first + NumLanes() >= kNumSamples) ListHits(frame, list);
  });
}

// Lists the pixels that a transparent primitive covers in front of opaque
// ones.
inline HWY_ATTR void ListTransparent(const Target& target, size_t index,
                                     Layer layer, const Band& band,
                                     Frame& frame) {
  const ClearSight sight{*target.snapshot, frame, layer};
  const ScreenRect rect = band.Cut(sight.RectOf(*target.primitive));
  if (rect.empty()) return;
  PixelList& list = layer == Layer::kDirect ? frame.direct_lists[index]
                                            : frame.mirrored_lists[index];
  VisitShape(target.primitive->shape, [&](auto shape) HWY_ATTR {
    if constexpr (shape() == Shape::kTriangles) {
      ListTransparentTriangles(target, sight, band, rect, frame, list);
    } else {
      Floats<kNumSamples> nearness;
      AppendSeen(
          band, frame, {target, rect, Listing::kPerSample, sight.seen(), list},
          [&](int x, int y, size_t at) HWY_ATTR {
            const Target::RowRays row = target.RaysOfRow(y);
            nearness = target.rays.are_parallel
                           ? target.Look<shape(), true>(x, row)
                           : target.Look<shape(), false>(x, row);
            return SampleBits([&](size_t s) HWY_ATTR {
              return sight.Shows(nearness[s], x, y, at, s);
            });
          },
          [&](size_t /*at*/) { return nearness; });
    }
  });
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
