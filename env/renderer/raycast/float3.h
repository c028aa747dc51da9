#pragma once

#include <cmath>

#include "env/renderer/raycast/snapshot.h"

// Points and directions, one at a time.
namespace replicant::env::raycast {

inline Float3 ToFloat3(const float* v) { return {v[0], v[1], v[2]}; }

inline float Dot(const Float3& a, const Float3& b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

inline Float3 AddScaled(const Float3& a, const Float3& b, float scale) {
  return {a[0] + b[0] * scale, a[1] + b[1] * scale, a[2] + b[2] * scale};
}

inline Float3 Sub(const Float3& a, const Float3& b) {
  return AddScaled(a, b, -1);
}

inline Float3 Cross(const Float3& a, const Float3& b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2],
          a[0] * b[1] - a[1] * b[0]};
}

inline Float3 Normalized(const Float3& v) {
  const float length = std::sqrt(Dot(v, v));
  if (length < 1e-10f) return {0, 0, 1};
  return {v[0] / length, v[1] / length, v[2] / length};
}

inline Float3 Axis(const Float9& rotation, size_t column) {
  return {rotation[column], rotation[3 + column], rotation[6 + column]};
}

// Mirrors a direction at a plane with unit normal `normal`.
inline Float3 Mirrored(const Float3& v, const Float3& normal) {
  return AddScaled(v, normal, -2 * Dot(v, normal));
}

}  // namespace replicant::env::raycast
