// The nearest primitive of each sample of a band. Included once per
// instruction set.
#include <algorithm>
#include <array>

#include "env/renderer/raycast/band-inl.h"
#include "env/renderer/raycast/intersect-inl.h"

#if defined(REPLICANT_RAYCAST_COVER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_COVER_INL_H_
#undef REPLICANT_RAYCAST_COVER_INL_H_
#else
#define REPLICANT_RAYCAST_COVER_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// One pass over the picture: directly, or through the mirror.
enum class Layer { kDirect, kMirrored };

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

  // What the rays of a row of pixels share, by sample.
  struct RowRays {
    Vec3s<kNumSamples> fan;
    Floats<kNumSamples> y;
  };
  HWY_INLINE RowRays RaysOfRow(int y) const {
    RowRays row;
    for (size_t s = 0; s < kNumSamples; ++s) {
      row.y[s] = Set(static_cast<float>(y) + snapshot->samples->y[s]);
      row.fan[s] = rays.Row(row.y[s]);
    }
    return row;
  }

  // 1 / depth of the samples of pixels of a row from x on; 0 or less where the
  // primitive is not seen. `kParallel`: rays are.
  template <Shape kShape, bool kParallel>
  HWY_INLINE Floats<kNumSamples> Look(int x, const RowRays& row) const {
    Vec3s<kNumSamples> fan;
    Floats<kNumSamples> at_x;
    const Float column = ToFloat(CountFrom(x));
    for (size_t s = 0; s < kNumSamples; ++s) {
      at_x[s] = column + Set(snapshot->samples->x[s]);
      fan[s] = Fma(Set(rays.per_x), at_x[s], row.fan[s]);
    }
    Floats<kNumSamples> nearness =
        kParallel ? ParallelNearness<kShape>(*primitive, rays, fan)
                  : Nearness<kShape>(*primitive, origin, fan);
    if (!may_meet_sky) return nearness;
    for (size_t s = 0; s < kNumSamples; ++s) {
      nearness[s] = BeforeSky(at_x[s], row.y[s], nearness[s]);
    }
    return nearness;
  }

  // `nearness`, but 0 where the sky is nearer: a ray from the eye hits the sky
  // at that distance across or up.
  HWY_INLINE Float BeforeSky(Float x, Float y, Float nearness) const {
    const Rays& world = snapshot->rays;
    const Vec3 ray = FanAt(world, x, y);
    if (world.are_parallel) {
      const Float sky = ParallelSkyDepth(*snapshot, ray);
      const Mask is_behind = hn::And(sky > Zero(), nearness * sky < Set(1.0f));
      return hn::IfThenZeroElse(is_behind, nearness);
    }
    const Float reach = nearness * Set(snapshot->sky_distance);
    const Float across2 = Fma(ray.y, ray.y, ray.x * ray.x);
    const Mask is_before =
        hn::And(hn::Abs(ray.z) <= reach, across2 <= reach * reach);
    return hn::IfThenElseZero(is_before, nearness);
  }
};

// Writes primitive `index` to the samples in `rect` where it is nearest. At
// equal depth a later primitive wins, as with OpenGL's GL_GEQUAL.
template <Shape kShape, Layer kLayer, bool kParallel>
HWY_ATTR void CoverShape(const Target& target, int index, const Band& band,
                         const ScreenRect& rect, Frame& frame) {
  SeenSamples& seen = kLayer == Layer::kDirect ? frame.direct : frame.mirrored;
  const Int id = hn::Set(kInt, index);
  const Float nearest = Set(1.0f / target.snapshot->near_depth);
  const auto lanes = static_cast<int>(NumLanes());
  for (int y = rect.y0; y < rect.y1; ++y) {
    const Target::RowRays row = target.RaysOfRow(y);
    for (int x = rect.x0; x < rect.x1; x += lanes) {
      const size_t at = band.Place(frame, x, y);
      const Floats<kNumSamples> nearness =
          target.Look<kShape, kParallel>(x, row);
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

// Whether rays through pixels [x0, x1) x [y0, y1) may meet the target, by the
// boxes at the root of a tree.
inline HWY_ATTR bool MayMeet(const Target& target, int x0, int x1, int y0,
                             int y1) {
  const TriangleSet& set = *target.primitive->triangles;
  if (set.tree().nodes().empty()) return false;
  // a vector of corners of the rectangle, which are four
  if (NumLanes() < 4) return true;
  const Int lane = CountFrom(0);
  const auto has = [&](int32_t bit) HWY_ATTR {
    const Int b = hn::Set(kInt, bit);
    return IntEqual(hn::And(lane, b), b);
  };
  const auto place = [&](int32_t bit, int low, int high) HWY_ATTR {
    return If(has(bit), Set(static_cast<float>(high)),
              Set(static_cast<float>(low)));
  };
  const RayLanes rays = target.rays.Through(place(1, x0, x1), place(2, y0, y1));
  const Beam beam =
      MakeBeam(rays.start, rays.direction, Zero() == Zero(), set.half_box());
  alignas(64) std::array<float, TriangleTree::kWidth> enter;
  return ReachedChildren(set.tree().nodes().front(), beam, enter.data()) != 0;
}

// Calls visit(x, y, first) for the samples of pixels in `rect` that may meet
// the target's triangles: of a vector of samples, numbered pixel by pixel from
// (x, y) on, `first` is the first one. Triangles may be smaller than a pixel:
// the rays of a vector come from few pixels, with all samples of each, so that
// they traverse the same part of the tree.
template <typename Visit>
HWY_INLINE void ForSamples(const Target& target, const ScreenRect& rect,
                           const Visit& visit) {
  constexpr int kTile = 8;
  const int pixels = std::max(1, static_cast<int>(NumLanes()) / kNumSamples);
  for (int x0 = rect.x0; x0 < rect.x1; x0 += kTile) {
    const int x1 = x0 + kTile;
    if (!MayMeet(target, x0, x1, rect.y0, rect.y1)) continue;
    for (int y = rect.y0; y < rect.y1; ++y) {
      for (int x = x0; x < std::min(x1, rect.x1); x += pixels) {
        // one vector, or several if it is shorter than a pixel's samples
        for (size_t first = 0; first < kNumSamples; first += NumLanes()) {
          visit(x, y, first);
        }
      }
    }
  }
}

// A vector of samples as ForSamples() counts them, and their sight: from
// `nearest` on to `farthest`, as 1 / depth.
struct SampleRays {
  std::array<float, hn::MaxLanes(kFloat)> nearest, farthest;
  Float x, y;

  HWY_INLINE SampleRays(const Target& target, Layer layer, const Band& band,
                        const Frame& frame, int left, int top, size_t first) {
    const Snapshot& snapshot = *target.snapshot;
    const bool is_direct = layer == Layer::kDirect;
    const SeenSamples& seen = is_direct ? frame.direct : frame.mirrored;
    const size_t at = band.Place(frame, left, top);
    for (size_t lane = 0; lane < NumLanes(); ++lane) {
      const size_t sample = (first + lane) % kNumSamples;
      const size_t place = at + (first + lane) / kNumSamples;
      farthest[lane] = seen.nearness[sample].data()[place];
      // a triangle before the near plane, or before the mirror, hides none of
      // those behind it
      nearest[lane] = is_direct ? 1.0f / snapshot.near_depth
                                : frame.direct.nearness[sample].data()[place];
    }
    x = hn::LoadU(kFloat, snapshot.samples->spread_x.data() + first) +
        Set(static_cast<float>(left));
    y = hn::LoadU(kFloat, snapshot.samples->spread_y.data() + first) +
        Set(static_cast<float>(top));
  }
  HWY_INLINE Float Begin() const {
    return Set(1.0f) / hn::LoadU(kFloat, nearest.data());
  }
  // beyond the farthest, but for rounding
  HWY_INLINE Float End() const {
    return Set(1.0001f) / hn::LoadU(kFloat, farthest.data());
  }
  // 1 / depth of hits at `t`; 0 without one and behind the sky.
  HWY_INLINE Float Nearness(const Target& target, Mask is_hit, Float t) const {
    const Float near = hn::IfThenElseZero(is_hit, Set(1.0f) / t);
    return target.may_meet_sky ? target.BeforeSky(x, y, near) : near;
  }
};

// As above, for triangles, whose number is kept; primitives of triangles may
// come in any order.
template <Layer kLayer>
HWY_ATTR void CoverTriangles(const Target& target, int index, const Band& band,
                             const ScreenRect& rect, Frame& frame) {
  SeenSamples& seen = kLayer == Layer::kDirect ? frame.direct : frame.mirrored;
  const TriangleSet& set = *target.primitive->triangles;
  std::array<float, hn::MaxLanes(kFloat)> nearness;
  std::array<int32_t, hn::MaxLanes(kInt)> triangle;
  ForSamples(target, rect, [&](int x, int y, size_t first) HWY_ATTR {
    const SampleRays samples(target, kLayer, band, frame, x, y, first);
    const RayLanes rays = target.rays.Through(samples.x, samples.y);
    const TriangleHits hits = FindTriangles<false>(
        set, rays.start, rays.direction, samples.Begin(), samples.End());
    const Mask is_hit = hits.t < Set(kMiss);
    if (hn::AllFalse(kFloat, is_hit)) return;
    hn::StoreU(samples.Nearness(target, is_hit, hits.t), kFloat,
               nearness.data());
    hn::StoreU(hits.index, kInt, triangle.data());
    const size_t at = band.Place(frame, x, y);
    for (size_t lane = 0; lane < NumLanes(); ++lane) {
      const size_t sample = (first + lane) % kNumSamples;
      const size_t place = at + (first + lane) / kNumSamples;
      float& old = seen.nearness[sample].data()[place];
      int32_t& id = seen.id[sample].data()[place];
      const bool is_nearer =
          nearness[lane] > old || (nearness[lane] == old && index > id);
      if (!is_nearer || nearness[lane] > samples.nearest[lane]) continue;
      old = nearness[lane];
      id = index;
      seen.triangle[sample].data()[place] = triangle[lane];
    }
  });
}

template <Layer kLayer>
HWY_ATTR void Cover(const Target& target, int index, const Band& band,
                    const ScreenRect& rect, Frame& frame) {
  VisitShape(target.primitive->shape, [&](auto shape) HWY_ATTR {
    if constexpr (shape() == Shape::kTriangles) {
      CoverTriangles<kLayer>(target, index, band, rect, frame);
    } else if (target.rays.are_parallel) {
      CoverShape<shape(), kLayer, true>(target, index, band, rect, frame);
    } else {
      CoverShape<shape(), kLayer, false>(target, index, band, rect, frame);
    }
  });
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

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
