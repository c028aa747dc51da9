// Lists of the pixels in which a primitive is seen. Included once per
// instruction set.
#include <array>

#include "env/renderer/raycast/cover-inl.h"

#if defined(REPLICANT_RAYCAST_LIST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_LIST_INL_H_
#undef REPLICANT_RAYCAST_LIST_INL_H_
#else
#define REPLICANT_RAYCAST_LIST_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

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

// Appends all lanes, with all samples.
HWY_INLINE void AppendFull(Int pixel, const int32_t* triangles,
                           PixelList& list) {
  const size_t at = list.count;
  hn::StoreU(pixel, kInt, list.pixels.data() + at);
  hn::StoreU(hn::Set(kInt, kAllSamples), kInt, list.samples.data() + at);
  if (triangles != nullptr) {
    hn::StoreU(hn::LoadU(kInt, triangles), kInt, list.triangles.data() + at);
  }
  list.count += NumLanes();
}

// How the samples of a primitive's pixels are listed.
enum class Listing {
  // all samples of a pixel together: the mirror has one colour per pixel, and
  // its reflection is added to that
  kPerPixel,
  // once per sample where a pixel is partly covered or sees several faces of a
  // box or cylinder: at an edge the samples lie on triangles that look
  // different
  kPerSample,
  // the same where a pixel's samples see several triangles
  kPerTriangle,
};

inline Listing ListingOf(const Snapshot& snapshot, size_t index) {
  if (snapshot.primitives[index].shape == Shape::kTriangles) {
    return Listing::kPerTriangle;
  }
  return static_cast<int>(index) == snapshot.mirror ? Listing::kPerPixel
                                                    : Listing::kPerSample;
}

// The pixels whose samples see several faces of a box or cylinder, which they
// all hit at these 1 / depths.
HWY_INLINE hn::Mask<IntTag> SeesSeveralFaces(
    const Target& target, int x, int y, const Floats<kNumSamples>& nearness) {
  const Primitive& p = *target.primitive;
  const SamplePlaces& samples = *target.snapshot->samples;
  // the point where a ray enters the shape, times the nearness
  const auto enter = [&](size_t s) HWY_ATTR {
    const RayLanes ray =
        target.rays.Through(ToFloat(CountFrom(x)) + Set(samples.x[s]),
                            Set(static_cast<float>(y) + samples.y[s]));
    return Fma(ray.start, nearness[s], ray.direction);
  };
  const auto face = [&](Vec3 point) HWY_ATTR {
    const Vec3 square = point * point;
    const Int one = hn::Set(kInt, 1);
    if (p.shape == Shape::kCylinder) {
      const Float half = Set(p.unit_half_length);
      return If(square.z >= (square.x + square.y) * half * half, one,
                hn::Zero(kInt));
    }
    const Int x_or_y = If(square.x >= square.y, hn::Zero(kInt), one);
    return If(square.z >= hn::Max(square.x, square.y), one + one, x_or_y);
  };
  const Int first = face(enter(0));
  Int others = hn::Zero(kInt);
  for (size_t s = 1; s < kNumSamples; ++s) {
    others = hn::Or(others, hn::Xor(face(enter(s)), first));
  }
  return hn::Gt(others, hn::Zero(kInt));
}

// Pixels to be listed, and where.
struct ListedPixels {
  const Target& target;
  ScreenRect rect;
  Listing listing;
  const SeenSamples& seen;
  PixelList& list;
};

// Appends a vector of pixels, whose triangles are at `at`; full pixels of
// `is_split` sample by sample.
HWY_INLINE void Append(Int samples, hn::Mask<IntTag> is_split, int x, int y,
                       size_t at, const ListedPixels& pixels) {
  PixelList& list = pixels.list;
  const Int pixel = CountFrom((y << 16) | x);
  std::array<const int32_t*, kNumSamples> triangles{};
  auto is_full =
      hn::AndNot(is_split, hn::Eq(samples, hn::Set(kInt, kAllSamples)));
  if (pixels.listing == Listing::kPerTriangle) {
    for (size_t s = 0; s < kNumSamples; ++s) {
      triangles[s] = pixels.seen.triangle[s].data() + at;
      is_full = hn::And(is_full, hn::Eq(hn::LoadU(kInt, triangles[0]),
                                        hn::LoadU(kInt, triangles[s])));
    }
  }
  if (hn::AllTrue(kInt, is_full)) {
    return AppendFull(pixel, triangles[0], list);
  }
  if (pixels.listing == Listing::kPerPixel) {
    return AppendNonZero(samples, pixel, nullptr, list);
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

// Appends the pixels with their visible samples; `find_seen(x, y, place)` gives
// a bit for each, `find_nearness(place)` then the 1 / depths of all.
template <typename FindSeen, typename FindNearness>
HWY_INLINE void AppendSeen(const Band& band, const Frame& frame,
                           const ListedPixels& pixels,
                           const FindSeen& find_seen,
                           const FindNearness& find_nearness) {
  const ScreenRect& rect = pixels.rect;
  if (rect.empty()) return;
  pixels.list.Reserve(static_cast<size_t>(kNumSamples) *
                      static_cast<size_t>(rect.y1 - rect.y0) * frame.stride);
  const Shape shape = pixels.target.primitive->shape;
  const bool may_split = pixels.listing == Listing::kPerSample &&
                         (shape == Shape::kBox || shape == Shape::kCylinder);
  const auto lanes = static_cast<int>(NumLanes());
  for (int y = rect.y0; y < rect.y1; ++y) {
    for (int x = rect.x0; x < rect.x1; x += lanes) {
      const size_t at = band.Place(frame, x, y);
      Int samples = find_seen(x, y, at);
      // lanes right of the picture hold leftovers
      const auto is_inside =
          hn::Lt(CountFrom(x), hn::Set(kInt, pixels.target.snapshot->width));
      samples = hn::IfThenElseZero(is_inside, samples);
      if (hn::AllTrue(kInt, hn::Eq(samples, hn::Zero(kInt)))) continue;
      const auto is_split =
          may_split ? SeesSeveralFaces(pixels.target, x, y, find_nearness(at))
                    : hn::Gt(hn::Zero(kInt), hn::Zero(kInt));
      Append(samples, is_split, x, y, at, pixels);
    }
  }
}

HWY_INLINE Floats<kNumSamples> LoadNearness(const SeenSamples& seen,
                                            size_t at) {
  Floats<kNumSamples> nearness;
  for (size_t s = 0; s < kNumSamples; ++s) {
    nearness[s] = hn::LoadU(kFloat, seen.nearness[s].data() + at);
  }
  return nearness;
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

// Lists the pixels in which the target, primitive `index`, is seen directly.
inline HWY_ATTR void ListDirect(const Target& target, size_t index,
                                const Band& band, Frame& frame) {
  const Int id = hn::Set(kInt, static_cast<int32_t>(index));
  AppendSeen(
      band, frame,
      {target, band.Cut(target.primitive->rect),
       ListingOf(*target.snapshot, index), frame.direct,
       frame.direct_lists[index]},
      [&](int /*x*/, int /*y*/, size_t at) HWY_ATTR {
        return SampleBits([&](size_t s) HWY_ATTR {
          return hn::Eq(hn::LoadU(kInt, frame.direct.id[s].data() + at), id);
        });
      },
      [&](size_t at) HWY_ATTR { return LoadNearness(frame.direct, at); });
}

// The samples in which the mirror is visible: of a box, its upper side.
class MirrorView {
 public:
  MirrorView(const Snapshot& snapshot, const Frame& frame)
      : snapshot_(snapshot), frame_(frame), is_box_(snapshot.is_box_mirror()) {
    for (size_t i = 0; i < 3; ++i) {
      height_ += (snapshot.mirror_position[i] - snapshot.rays.origin[i]) *
                 snapshot.mirror_normal[i];
    }
  }

  // Sample `s` of pixels from (x, y) on, at `at` in the band.
  HWY_INLINE hn::Mask<IntTag> Shows(int x, int y, size_t at, size_t s) const {
    const auto is_mirror =
        hn::Eq(hn::LoadU(kInt, frame_.direct.id[s].data() + at),
               hn::Set(kInt, snapshot_.mirror));
    if (!is_box_) return is_mirror;
    const Rays& rays = snapshot_.rays;
    const SamplePlaces& samples = *snapshot_.samples;
    const Vec3 fan = FanAt(rays, ToFloat(CountFrom(x)) + Set(samples.x[s]),
                           Set(static_cast<float>(y) + samples.y[s]));
    const Vec3 normal = Set(snapshot_.mirror_normal);
    const Float nearness =
        rays.are_parallel ? Dot(Set(rays.forward), normal) *
                                SafeInverse(Set(height_) - Dot(fan, normal))
                          : Dot(fan, normal) * SafeInverse(Set(height_));
    const Float seen = hn::LoadU(kFloat, frame_.direct.nearness[s].data() + at);
    return hn::And(is_mirror,
                   hn::RebindMask(kInt, hn::Abs(nearness - seen) <=
                                            Set(1e-4f) * hn::Abs(nearness)));
  }

 private:
  const Snapshot& snapshot_;
  const Frame& frame_;
  const bool is_box_;
  float height_ = 0;  // of the mirror over the eye
};

// Lists the pixels in which the target, primitive `index`, is seen in the
// mirror, where the mirror itself is visible.
inline HWY_ATTR void ListMirrored(const Target& target, size_t index,
                                  const Band& band, Frame& frame) {
  const Int id = hn::Set(kInt, static_cast<int32_t>(index));
  const MirrorView mirror(*target.snapshot, frame);
  AppendSeen(
      band, frame,
      {target, band.Cut(target.primitive->mirrored_rect),
       ListingOf(*target.snapshot, index), frame.mirrored,
       frame.mirrored_lists[index]},
      [&](int x, int y, size_t at) HWY_ATTR {
        return SampleBits([&](size_t s) HWY_ATTR {
          return hn::And(
              mirror.Shows(x, y, at, s),
              hn::Eq(hn::LoadU(kInt, frame.mirrored.id[s].data() + at), id));
        });
      },
      [&](size_t at) HWY_ATTR { return LoadNearness(frame.mirrored, at); });
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
