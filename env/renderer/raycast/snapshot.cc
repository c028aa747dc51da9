#include "env/renderer/raycast/snapshot.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "env/renderer/raycast/camera.h"
#include "env/renderer/raycast/float3.h"
#include "env/renderer/raycast/lights.h"
#include "env/renderer/raycast/primitive.h"

namespace replicant::env::raycast {
namespace {

// Where a primitive can be seen.
struct Extent {
  ScreenRect rect;
  float far_depth = 0;
};

// The rectangle of the picture that holds the box around `p`, or its image in
// the mirror. In perspective, a box that reaches behind the camera may be
// anywhere.
Extent ExtentOf(const Snapshot& s, const Primitive& p, bool is_mirrored) {
  const Extent everything{{0, 0, s.width, s.height}, s.far_depth};
  const Float3& half = p.half_box;
  const Float3 forward{s.orientation[0], s.orientation[1], s.orientation[2]};
  const Float3 right{s.orientation[3], s.orientation[4], s.orientation[5]};
  const Float3 up{s.orientation[6], s.orientation[7], s.orientation[8]};
  const float left = Dot(s.rays.base, right);
  const float top = Dot(s.rays.base, up);
  float x0 = std::numeric_limits<float>::max(), x1 = -x0, y0 = x0, y1 = -x0;
  float far_depth = 0;
  for (int corner = 0; corner < 8; ++corner) {
    Float3 at = p.position;
    for (size_t i = 0; i < 3; ++i) {
      at = AddScaled(at, Axis(p.rotation, i),
                     ((corner >> i) & 1) != 0 ? half[i] : -half[i]);
    }
    if (is_mirrored) {
      at = AddScaled(at, s.mirror_normal,
                     -2 * Dot(Sub(at, s.mirror_position), s.mirror_normal));
    }
    const Float3 v = Sub(at, s.rays.origin);
    const float depth = Dot(v, forward);
    if (!s.rays.are_parallel && depth < s.near_depth) return everything;
    const float scale = s.rays.are_parallel ? 1.0f : depth;
    const float x = (Dot(v, right) / scale - left) / s.slope_x;
    const float y = (top - Dot(v, up) / scale) / s.slope_y;
    far_depth = std::max(far_depth, depth);
    x0 = std::min(x0, x);
    x1 = std::max(x1, x);
    y0 = std::min(y0, y);
    y1 = std::max(y1, y);
  }
  const auto clamp = [](float v, int limit) {
    return static_cast<int>(
        std::clamp(v, -1.0f, static_cast<float>(limit) + 1.0f));
  };
  return {{std::max(0, clamp(std::floor(x0 - 0.01f), s.width)),
           std::max(0, clamp(std::floor(y0 - 0.01f), s.height)),
           std::min(s.width, clamp(std::ceil(x1 + 0.01f), s.width)),
           std::min(s.height, clamp(std::ceil(y1 + 0.01f), s.height))},
          far_depth};
}

ScreenRect Overlap(const ScreenRect& a, const ScreenRect& b) {
  return {std::max(a.x0, b.x0), std::max(a.y0, b.y0), std::min(a.x1, b.x1),
          std::min(a.y1, b.y1)};
}

// A lower bound of the sky's depth. The sky stands at `sky_distance` over a
// component of the ray; no component exceeds the ray's length, which is largest
// in a corner of the picture. Parallel rays start at most that far from the
// middle of the sky.
float NearestSky(const Snapshot& s) {
  if (s.sky == nullptr) return s.far_depth;
  float longest2 = 0;
  for (int corner = 0; corner < 4; ++corner) {
    const auto x = static_cast<float>((corner & 1) != 0 ? s.width : 0);
    const auto y = static_cast<float>((corner & 2) != 0 ? s.height : 0);
    const Float3 ray =
        AddScaled(AddScaled(s.rays.base, s.rays.per_x, x), s.rays.per_y, y);
    longest2 = std::max(longest2, Dot(ray, ray));
  }
  const float longest = std::sqrt(longest2);
  return s.rays.are_parallel ? s.sky_distance - longest
                             : s.sky_distance / longest;
}

// Whether parallel rays with the direction `along` meet the side of `plane`
// that the camera looks at from its place; OpenGL does not draw the other one.
// (All rays from one point meet that side.)
bool IsTurnedAway(const Snapshot& s, const Primitive& plane,
                  const Float3& along) {
  if (!s.rays.are_parallel || plane.shape != Shape::kPlane) return false;
  const float toward = Dot(along, Axis(plane.rotation, 2));
  return IsBehind(plane, s.rays.origin) ? toward <= 0 : toward >= 0;
}

void SortTransparent(const mjvScene& scene, Snapshot& s) {
  s.transparent.clear();
  std::vector<float> distance(s.primitives.size());
  for (size_t i = 0; i < s.primitives.size(); ++i) {
    const Primitive& p = s.primitives[i];
    if (!p.is_transparent) continue;
    s.transparent.push_back(static_cast<int>(i));
    const Float3 v = Sub(p.position, s.rays.origin);
    const float model_radius = scene.geoms[i].modelrbound;
    distance[i] =
        p.shape == Shape::kPlane
            ? 1e10f
            : std::sqrt(Dot(v, v)) -
                  (model_radius > 0 ? model_radius : p.bounding_radius);
  }
  std::stable_sort(s.transparent.begin(), s.transparent.end(),
                   [&](int a, int b) {
                     return distance[static_cast<size_t>(a)] <
                            distance[static_cast<size_t>(b)];
                   });
}

// Finds the mirror and turns the camera's rays at it.
void SetMirror(Snapshot& s) {
  s.mirror = -1;
  for (size_t i = 0; i < s.primitives.size(); ++i) {
    const Primitive& p = s.primitives[i];
    if (p.reflectance <= 0 || p.is_transparent) continue;
    if (p.shape != Shape::kPlane && p.shape != Shape::kBox) continue;
    const Float3 normal = Axis(p.rotation, 2);
    s.mirror_normal = normal;
    s.mirror_position = p.position;
    if (p.shape == Shape::kBox) {
      s.mirror_position = AddScaled(p.position, normal, p.size[2]);
    }
    const float height = Dot(Sub(s.rays.origin, s.mirror_position), normal);
    // no other mirror takes the place of a box that is seen from below
    if (height < 0) return;
    s.mirror = static_cast<int>(i);
    s.mirrored_rays.origin = AddScaled(s.rays.origin, normal, -2 * height);
    s.mirrored_rays.base = Mirrored(s.rays.base, normal);
    s.mirrored_rays.per_x = Mirrored(s.rays.per_x, normal);
    s.mirrored_rays.per_y = Mirrored(s.rays.per_y, normal);
    s.mirrored_rays.are_parallel = s.rays.are_parallel;
    s.mirrored_rays.forward = Mirrored(s.rays.forward, normal);
    return;
  }
}

Float3 Clamped(const float* rgb) {
  return {std::clamp(rgb[0], 0.0f, 1.0f), std::clamp(rgb[1], 0.0f, 1.0f),
          std::clamp(rgb[2], 0.0f, 1.0f)};
}

void SetFog(const mjModel& model, const mjvScene& scene, Snapshot& s) {
  s.fog = {};
  if (scene.flags[mjRND_FOG] == 0) return;
  const auto extent = static_cast<float>(model.stat.extent);
  const float start = model.vis.map.fogstart * extent;
  const float end = model.vis.map.fogend * extent;
  s.fog = {.is_on = true,
           .end = end,
           .per_depth = end == start ? 1.0f : 1 / (end - start),
           .color = Clamped(model.vis.rgba.fog)};
}

void SetHaze(const mjModel& model, const mjvScene& scene, Snapshot& s) {
  s.haze.is_seen = false;
  if (s.sky == nullptr || scene.flags[mjRND_HAZE] == 0 ||
      scene.flags[mjRND_SKYBOX] == 0) {
    return;
  }
  const mjvGeom* begin = scene.geoms;
  const mjvGeom* end = begin + scene.ngeom;
  const mjvGeom* plane = std::find_if(begin, end, [](const mjvGeom& g) {
    return g.type == mjGEOM_PLANE && g.size[0] == 0 && g.size[1] == 0;
  });
  if (plane == end) return;
  Haze& haze = s.haze;
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      haze.to_plane[3 * i + j] = plane->mat[3 * j + i];
    }
  }
  const Float3 normal{plane->mat[2], plane->mat[5], plane->mat[8]};
  haze.elevation = Dot(Sub(s.rays.origin, ToFloat3(plane->pos)), normal);
  const float radius = model.vis.map.haze;
  if (haze.elevation <= 0 || radius <= 0) return;
  haze.is_seen = true;
  haze.slope = radius / haze.elevation;
  const double alpha = std::atan2(1.0, double{radius});
  const double beta = 0.75 * std::numbers::pi - alpha;
  haze.middle = static_cast<float>(std::sqrt(0.5) * radius * std::sin(alpha) /
                                   std::sin(beta));
  haze.color = Clamped(model.vis.rgba.haze);
  const int slices = model.vis.quality.numslices;
  const double half_angle = std::numbers::pi / slices;
  haze.edge_x.clear();
  haze.edge_y.clear();
  for (int k = 0; k < slices; ++k) {
    const double angle = (2 * k + 1) * half_angle;
    const double length = 1 / std::cos(half_angle);
    haze.edge_x.push_back(static_cast<float>(std::cos(angle) * length));
    haze.edge_y.push_back(static_cast<float>(std::sin(angle) * length));
  }
}

}  // namespace

void TakeSnapshot(const mjModel& model, const mjvScene& scene,
                  const Assets& assets, int height, int width,
                  Snapshot& snapshot) {
  Snapshot& s = snapshot;
  s.height = height;
  s.width = width;
  s.samples = model.vis.quality.offsamples > 0 ? &kFourSamples : &kOneSample;
  s.num_slices = model.vis.quality.numslices;
  s.num_stacks = model.vis.quality.numstacks;
  s.num_quads = model.vis.quality.numquads;
  TakeCamera(scene, s);
  TakeLights(model, scene, s);
  s.primitives.clear();
  s.moving.resize(static_cast<size_t>(scene.ngeom));
  for (size_t i = 0; i < s.moving.size(); ++i) {
    s.primitives.push_back(
        TakeGeom(model, scene, scene.geoms[i], assets, s, s.moving[i]));
  }
  SortTransparent(scene, s);
  SetMirror(s);
  s.sky = nullptr;
  // mjr_render takes the first sky box
  for (size_t id = 0; id < assets.textures.size() && s.sky == nullptr; ++id) {
    if (model.tex_type[id] == mjTEXTURE_SKYBOX) {
      s.sky = assets.textures[id].get();
    }
  }
  SetHaze(model, scene, s);
  SetFog(model, scene, s);
  const float nearest_sky = NearestSky(s);
  for (Primitive& p : s.primitives) {
    const Extent extent = ExtentOf(s, p, /*is_mirrored=*/false);
    p.rect = extent.rect;
    p.may_meet_sky =
        s.sky != nullptr && extent.far_depth >= 0.99f * nearest_sky;
    if (IsTurnedAway(s, p, s.rays.forward)) p.rect = {};
  }
  if (s.mirror < 0) return;
  const Primitive& mirror = s.primitives[static_cast<size_t>(s.mirror)];
  for (Primitive& p : s.primitives) {
    // OpenGL draws the side of a plane that the camera sees, in the mirror, too
    if (p.shape == Shape::kPlane &&
        (IsBehind(p, s.rays.origin) != IsBehind(p, s.mirrored_rays.origin) ||
         IsTurnedAway(s, p, s.mirrored_rays.forward))) {
      p.mirrored_rect = {};
      continue;
    }
    p.mirrored_rect =
        Overlap(ExtentOf(s, p, /*is_mirrored=*/true).rect, mirror.rect);
  }
}

}  // namespace replicant::env::raycast
