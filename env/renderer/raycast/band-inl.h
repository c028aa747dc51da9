// Rows of a picture that are looked at together. Included once per instruction
// set.
#include <algorithm>

#include "env/renderer/raycast/frame.h"
#include "env/renderer/raycast/vector-inl.h"

#if defined(REPLICANT_RAYCAST_BAND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_BAND_INL_H_
#undef REPLICANT_RAYCAST_BAND_INL_H_
#else
#define REPLICANT_RAYCAST_BAND_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

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

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
