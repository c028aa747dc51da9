#include "env/renderer/raycast/camera.h"

#include <array>
#include <cmath>

#include "env/renderer/raycast/float3.h"

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

void TakeCamera(const mjvScene& scene, Snapshot& s) {
  const mjvGLCamera camera = AverageCamera(scene.camera[0], scene.camera[1]);
  const Float3 forward = Normalized(ToFloat3(camera.forward));
  const Float3 right = Normalized(Cross(forward, ToFloat3(camera.up)));
  const Float3 up = Normalized(Cross(right, forward));
  for (size_t i = 0; i < 3; ++i) {
    s.orientation[i] = forward[i];
    s.orientation[3 + i] = right[i];
    s.orientation[6 + i] = up[i];
  }
  s.near_depth = camera.frustum_near;
  s.far_depth = camera.frustum_far;
  s.sky_distance = 0.70f * camera.frustum_far;

  const float height = camera.frustum_top - camera.frustum_bottom;
  const float half_width = camera.frustum_width != 0
                               ? camera.frustum_width
                               : 0.5f * static_cast<float>(s.width) /
                                     static_cast<float>(s.height) * height;
  // the frustum's sides are given at the near plane
  const bool is_parallel = camera.orthographic != 0;
  const float depth = is_parallel ? 1.0f : camera.frustum_near;
  const float left = (camera.frustum_center - half_width) / depth;
  const float top = camera.frustum_top / depth;
  s.slope_x = 2 * half_width / depth / static_cast<float>(s.width);
  s.slope_y = height / depth / static_cast<float>(s.height);
  s.rays.are_parallel = is_parallel;
  s.rays.forward = forward;
  s.rays.origin = ToFloat3(camera.pos);
  s.rays.base = AddScaled(
      AddScaled(is_parallel ? Float3{} : forward, right, left), up, top);
  s.rays.per_x = AddScaled({}, right, s.slope_x);
  s.rays.per_y = AddScaled({}, up, -s.slope_y);
}

}  // namespace replicant::env::raycast
