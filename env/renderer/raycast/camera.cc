#include "env/renderer/raycast/camera.h"

#include <array>
#include <cmath>

namespace replicant::env::raycast {
namespace {

using Double3 = std::array<double, 3>;

Double3 Sum(const float* a, const float* b) {
  return {double{a[0]} + b[0], double{a[1]} + b[1], double{a[2]} + b[2]};
}

double Dot(const Double3& a, const Double3& b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

Double3 Normalized(const Double3& v) {
  const double length = std::sqrt(Dot(v, v));
  if (length < mjMINVAL) return {1, 0, 0};
  const double inverse = 1 / length;
  return {v[0] * inverse, v[1] * inverse, v[2] * inverse};
}

void Store(const Double3& v, float* to) {
  for (size_t i = 0; i < 3; ++i) to[i] = static_cast<float>(v[i]);
}

}  // namespace

mjvGLCamera AverageCamera(const mjvGLCamera& a, const mjvGLCamera& b) {
  const Double3 position = Sum(a.pos, b.pos);
  const Double3 forward = Normalized(Sum(a.forward, b.forward));
  Double3 up = Sum(a.up, b.up);
  const double along = Dot(up, forward);
  for (size_t i = 0; i < 3; ++i) up[i] -= along * forward[i];

  const auto middle = [&](float mjvGLCamera::*field) {
    return 0.5f * (a.*field + b.*field);
  };
  mjvGLCamera average = a;
  Store({0.5 * position[0], 0.5 * position[1], 0.5 * position[2]}, average.pos);
  Store(forward, average.forward);
  Store(Normalized(up), average.up);
  average.frustum_center = middle(&mjvGLCamera::frustum_center);
  average.frustum_width = middle(&mjvGLCamera::frustum_width);
  average.frustum_bottom = middle(&mjvGLCamera::frustum_bottom);
  average.frustum_top = middle(&mjvGLCamera::frustum_top);
  average.frustum_near = middle(&mjvGLCamera::frustum_near);
  average.frustum_far = middle(&mjvGLCamera::frustum_far);
  return average;
}

}  // namespace replicant::env::raycast
