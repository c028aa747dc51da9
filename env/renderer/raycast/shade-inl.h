// Colours of the pixels that one primitive covers. Included once per
// instruction set.
#include "env/renderer/raycast/plane-inl.h"
#include "env/renderer/raycast/shade_triangle-inl.h"

#if defined(REPLICANT_RAYCAST_SHADE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_SHADE_INL_H_
#undef REPLICANT_RAYCAST_SHADE_INL_H_
#else
#define REPLICANT_RAYCAST_SHADE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// Shades the pixels of `list`.
inline HWY_ATTR void Shade(const Drawing& drawing, PixelList& list,
                           Frame& frame) {
  // pad the last vector with copies of a real pixel
  for (size_t i = list.count; i < list.count + NumLanes(); ++i) {
    list.pixels[i] = list.pixels[0];
    list.samples[i] = list.samples[0];
    list.triangles[i] = list.triangles[0];
  }
  if (frame.shaded.size() < list.pixels.size()) {
    frame.shaded.resize(list.pixels.size());
  }
  const Primitive& p = *drawing.primitive;
  if (p.shape == Shape::kPlane) return ShadePlane(drawing, list, frame);
  if (drawing.casters != nullptr) {
    const Ball ball{p.position, p.bounding_radius};
    for (Casters& casters : *drawing.casters) {
      FindCasters(*drawing.snapshot, p, ball, casters);
    }
  }
  VisitShape(p.shape, [&](auto shape) HWY_ATTR {
    ShadeRange<shape()>(drawing, 0, list.count, list, frame);
  });
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
