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

// Shades the first `count` pixels of the frame's list.
inline HWY_ATTR void Shade(const Drawing& drawing, size_t count, Frame& frame) {
  // fill the last vector with copies of a real pixel
  for (size_t i = count; i < count + NumLanes(); ++i) {
    frame.pixels.data()[i] = frame.pixels.data()[0];
    frame.samples.data()[i] = frame.samples.data()[0];
  }
  const Primitive& p = *drawing.primitive;
  if (p.shape == Shape::kPlane) return ShadePlane(drawing, count, frame);
  if (drawing.casters != nullptr) {
    const Ball ball{p.position, p.bounding_radius};
    for (Casters& casters : *drawing.casters) {
      FindCasters(*drawing.snapshot, *casters.light, p, ball, casters);
    }
  }
  switch (p.shape) {
    case Shape::kPlane:
      return;
    case Shape::kEllipsoid:
      return ShadeRange<Shape::kEllipsoid>(drawing, 0, count, frame);
    case Shape::kCapsule:
      return ShadeRange<Shape::kCapsule>(drawing, 0, count, frame);
    case Shape::kCylinder:
      return ShadeRange<Shape::kCylinder>(drawing, 0, count, frame);
    case Shape::kBox:
      return ShadeRange<Shape::kBox>(drawing, 0, count, frame);
    case Shape::kTriangles:
      return ShadeRange<Shape::kTriangles>(drawing, 0, count, frame);
  }
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
