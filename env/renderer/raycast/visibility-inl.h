// Which primitive every sample of the picture sees. Included once per
// instruction set.
#include "env/renderer/raycast/intersect-inl.h"

#if defined(REPLICANT_RAYCAST_VISIBILITY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_VISIBILITY_INL_H_
#undef REPLICANT_RAYCAST_VISIBILITY_INL_H_
#else
#define REPLICANT_RAYCAST_VISIBILITY_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// One pass over the picture: directly, or by way of the mirror.
enum class Layer { kDirect, kMirrored };

HWY_INLINE Float FirstColumn(int x) { return ToFloat(hn::Iota(kInt, x)); }

// Writes primitive `index` to the samples in `rect` that it is the nearest of.
// At equal depth a later primitive wins, as with OpenGL's GL_GEQUAL.
template <Shape kShape>
HWY_ATTR void CoverShape(const Primitive& p, int index, const ScreenRect& rect,
                         const Rays& world_rays, const Float near_depth,
                         Frame& frame, Layer layer) {
  const LocalRays rays = ToLocal(p, world_rays);
  const Vec3 origin = Set(rays.origin);
  const Int id = hn::Set(kInt, index);
  auto& depths = layer == Layer::kDirect ? frame.depth : frame.mirrored_depth;
  auto& ids = layer == Layer::kDirect ? frame.id : frame.mirrored_id;
  const auto lanes = static_cast<int>(NumLanes());
  for (int y = rect.y0; y < rect.y1; ++y) {
    const size_t row = static_cast<size_t>(y) * frame.stride;
    for (int x = rect.x0; x < rect.x1; x += lanes) {
      const size_t at = row + static_cast<size_t>(x);
      const Float column = FirstColumn(x);
      for (size_t s = 0; s < kNumSamples; ++s) {
        const Vec3 d = rays.Direction(column + Set(kSampleX[s]),
                                      Set(static_cast<float>(y) + kSampleY[s]));
        const Float t = Hit<kShape>(p, origin, d);
        float* depth = depths[s].data() + at;
        const Float old = hn::LoadU(kFloat, depth);
        // the mirror shows only what is in front of it, which lies beyond it
        // on the mirrored ray
        const Float first = layer == Layer::kDirect
                                ? near_depth
                                : hn::LoadU(kFloat, frame.depth[s].data() + at);
        const Mask is_nearer = hn::And(t <= old, t >= first);
        if (hn::AllFalse(kFloat, is_nearer)) continue;
        hn::StoreU(If(is_nearer, t, old), kFloat, depth);
        int32_t* ids_at = ids[s].data() + at;
        hn::StoreU(If(is_nearer, id, hn::LoadU(kInt, ids_at)), kInt, ids_at);
      }
    }
  }
}

inline HWY_ATTR void Cover(const Snapshot& snapshot, int index, Layer layer,
                           Frame& frame) {
  const Primitive& p = snapshot.primitives[static_cast<size_t>(index)];
  const bool is_direct = layer == Layer::kDirect;
  const ScreenRect& rect = is_direct ? p.rect : p.mirrored_rect;
  const Rays& rays = is_direct ? snapshot.rays : snapshot.mirrored_rays;
  const Float near_depth = Set(snapshot.near_depth);
  switch (p.shape) {
    case Shape::kPlane:
      return CoverShape<Shape::kPlane>(p, index, rect, rays, near_depth, frame,
                                       layer);
    case Shape::kEllipsoid:
      return CoverShape<Shape::kEllipsoid>(p, index, rect, rays, near_depth,
                                           frame, layer);
    case Shape::kCapsule:
      return CoverShape<Shape::kCapsule>(p, index, rect, rays, near_depth,
                                         frame, layer);
    case Shape::kCylinder:
      return CoverShape<Shape::kCylinder>(p, index, rect, rays, near_depth,
                                          frame, layer);
    case Shape::kBox:
      return CoverShape<Shape::kBox>(p, index, rect, rays, near_depth, frame,
                                     layer);
    case Shape::kTriangles:
      return CoverShape<Shape::kTriangles>(p, index, rect, rays, near_depth,
                                           frame, layer);
  }
}

// Appends the lanes whose `samples` are not zero to the frame's list and gives
// its new length.
HWY_INLINE size_t AppendNonZero(Int samples, Int pixel, size_t count,
                                Frame& frame) {
  const auto is_covered = hn::Gt(samples, hn::Zero(kInt));
  if (hn::AllFalse(kInt, is_covered)) return count;
  hn::CompressStore(samples, is_covered, kInt, frame.samples.data() + count);
  return count + hn::CompressStore(pixel, is_covered, kInt,
                                   frame.pixels.data() + count);
}

// Appends the pixels of a vector. With `per_sample` a pixel that is covered in
// part is listed once for each of its samples: at an edge they lie on triangles
// that look different.
HWY_INLINE size_t Append(Int samples, int x, int y, bool per_sample,
                         size_t count, Frame& frame) {
  if (hn::AllTrue(kInt, hn::Eq(samples, hn::Zero(kInt)))) return count;
  const Int pixel = hn::Iota(kInt, (y << 16) | x);
  if (!per_sample) return AppendNonZero(samples, pixel, count, frame);
  const auto is_full = hn::Eq(samples, hn::Set(kInt, kAllSamples));
  count =
      AppendNonZero(hn::IfThenElseZero(is_full, samples), pixel, count, frame);
  if (hn::AllTrue(kInt, is_full)) return count;
  const Int partial = hn::IfThenZeroElse(is_full, samples);
  for (int s = 0; s < kNumSamples; ++s) {
    const Int sample = hn::And(partial, hn::Set(kInt, 1 << s));
    count = AppendNonZero(sample, pixel, count, frame);
  }
  return count;
}

// Lists the pixels in which primitive `index` is seen.
inline HWY_ATTR size_t Collect(const Snapshot& snapshot, int index, Layer layer,
                               Frame& frame) {
  const Primitive& p = snapshot.primitives[static_cast<size_t>(index)];
  const bool is_direct = layer == Layer::kDirect;
  const ScreenRect& rect = is_direct ? p.rect : p.mirrored_rect;
  const Int id = hn::Set(kInt, index);
  const Int mirror = hn::Set(kInt, snapshot.mirror);
  // the mirror has one colour per pixel, which what it shows is added to
  const bool per_sample = index != snapshot.mirror;
  const auto lanes = static_cast<int>(NumLanes());
  size_t count = 0;
  for (int y = rect.y0; y < rect.y1; ++y) {
    const size_t row = static_cast<size_t>(y) * frame.stride;
    for (int x = rect.x0; x < rect.x1; x += lanes) {
      const size_t at = row + static_cast<size_t>(x);
      Int samples = hn::Zero(kInt);
      for (size_t s = 0; s < kNumSamples; ++s) {
        const Int bit = hn::Set(kInt, 1 << s);
        const Int direct = hn::LoadU(kInt, frame.id[s].data() + at);
        if (is_direct) {
          samples =
              hn::Or(samples, hn::IfThenElseZero(hn::Eq(direct, id), bit));
          continue;
        }
        // what the mirror shows counts where the mirror itself is seen
        const Int seen = hn::LoadU(kInt, frame.mirrored_id[s].data() + at);
        const auto is_seen = hn::And(hn::Eq(direct, mirror), hn::Eq(seen, id));
        samples = hn::Or(samples, hn::IfThenElseZero(is_seen, bit));
      }
      // lanes right of the picture hold leftovers
      const Int column = hn::Iota(kInt, x);
      samples = hn::IfThenElseZero(
          hn::Lt(column, hn::Set(kInt, snapshot.width)), samples);
      count = Append(samples, x, y, per_sample, count, frame);
    }
  }
  return count;
}

// Lists the pixels that a transparent primitive covers in front of what is
// opaque.
inline HWY_ATTR size_t CollectTransparent(const Snapshot& snapshot, int index,
                                          Frame& frame) {
  const Primitive& p = snapshot.primitives[static_cast<size_t>(index)];
  const LocalRays rays = ToLocal(p, snapshot.rays);
  const Vec3 origin = Set(rays.origin);
  const auto lanes = static_cast<int>(NumLanes());
  size_t count = 0;
  for (int y = p.rect.y0; y < p.rect.y1; ++y) {
    const size_t row = static_cast<size_t>(y) * frame.stride;
    for (int x = p.rect.x0; x < p.rect.x1; x += lanes) {
      const size_t at = row + static_cast<size_t>(x);
      Int samples = hn::Zero(kInt);
      for (size_t s = 0; s < kNumSamples; ++s) {
        const Vec3 d = rays.Direction(FirstColumn(x) + Set(kSampleX[s]),
                                      Set(static_cast<float>(y) + kSampleY[s]));
        const Float t = HitAny(p, origin, d);
        const Float old = hn::LoadU(kFloat, frame.depth[s].data() + at);
        const Mask is_nearer = hn::And(t <= old, t >= Set(snapshot.near_depth));
        samples = hn::Or(samples,
                         If(is_nearer, hn::Set(kInt, 1 << s), hn::Zero(kInt)));
      }
      const Int column = hn::Iota(kInt, x);
      samples = hn::IfThenElseZero(
          hn::Lt(column, hn::Set(kInt, snapshot.width)), samples);
      count = Append(samples, x, y, /*per_sample=*/true, count, frame);
    }
  }
  return count;
}

// Starts a picture: nothing seen but the sky, nothing seen in the mirror.
inline HWY_ATTR void Clear(const Snapshot& snapshot, const Sky& painted,
                           Frame& frame) {
  const size_t size = static_cast<size_t>(snapshot.height) * frame.stride;
  const Int nothing = hn::Set(kInt, -1);
  for (size_t s = 0; s < kNumSamples; ++s) {
    const float* sky = painted.depth[s].data();
    for (size_t i = 0; i < size; i += NumLanes()) {
      const Float depth = hn::LoadU(kFloat, sky + i);
      hn::StoreU(depth, kFloat, frame.depth[s].data() + i);
      hn::StoreU(nothing, kInt, frame.id[s].data() + i);
      if (snapshot.mirror >= 0) {
        hn::StoreU(Set(snapshot.far_depth), kFloat,
                   frame.mirrored_depth[s].data() + i);
        hn::StoreU(nothing, kInt, frame.mirrored_id[s].data() + i);
      }
    }
  }
  for (size_t i = 0; i < size; i += NumLanes()) {
    hn::StoreU(hn::Zero(hn::ScalableTag<uint32_t>()),
               hn::ScalableTag<uint32_t>(), frame.sum.data() + i);
  }
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
