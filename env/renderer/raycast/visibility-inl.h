// Finds what each sample of the picture sees. Included once per instruction
// set.
#include <algorithm>
#include <vector>

#include "env/renderer/raycast/haze-inl.h"
#include "env/renderer/raycast/sky-inl.h"
#include "env/renderer/raycast/transparent-inl.h"

#if defined(REPLICANT_RAYCAST_VISIBILITY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_VISIBILITY_INL_H_
#undef REPLICANT_RAYCAST_VISIBILITY_INL_H_
#else
#define REPLICANT_RAYCAST_VISIBILITY_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

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
    for (const size_t k : frame.order) {
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
    ListMirrored(Target(snapshot, k, views.mirrored[k], Layer::kMirrored), k,
                 band, frame);
  });
  for (const int k : snapshot.transparent) {
    const auto index = static_cast<size_t>(k);
    ListTransparent(
        Target(snapshot, index, views.mirrored[index], Layer::kMirrored), index,
        Layer::kMirrored, band, frame);
  }
}

// Lists the visible pixels of each primitive and draws the sky.
inline HWY_ATTR void FindVisible(const Snapshot& snapshot, const Views& views,
                                 Sky& sky, Frame& frame) {
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
      PutSky(snapshot, band, /*has_primitives=*/false, frame, sky);
      continue;
    }
    ClearSeen(snapshot, band, frame, frame.direct);
    for (const size_t k : frame.order) {
      const Primitive& p = snapshot.primitives[k];
      const ScreenRect rect = band.Cut(p.rect);
      if (p.is_transparent || rect.empty()) continue;
      Cover<Layer::kDirect>(
          Target(snapshot, k, views.direct[k], Layer::kDirect),
          static_cast<int>(k), band, rect, frame);
    }
    for (size_t k = 0; k < num; ++k) {
      const Primitive& p = snapshot.primitives[k];
      if (p.is_transparent || band.Cut(p.rect).empty()) continue;
      ListDirect(Target(snapshot, k, views.direct[k], Layer::kDirect), k, band,
                 frame);
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
      ListTransparent(
          Target(snapshot, index, views.direct[index], Layer::kDirect), index,
          Layer::kDirect, band, frame);
    }
    PutSky(snapshot, band, /*has_primitives=*/true, frame, sky);
  }
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
