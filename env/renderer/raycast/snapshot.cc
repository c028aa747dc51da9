#include "env/renderer/raycast/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "env/renderer/raycast/camera.h"
#include "env/renderer/scene.h"

namespace replicant::env::raycast {
namespace {

// OpenGL's fixed pipeline has eight lights; MuJoCo's calls for further ones
// have no effect.
constexpr int kMaxLights = 8;

Float3 ToFloat3(const float* v) { return {v[0], v[1], v[2]}; }

float Dot(const Float3& a, const Float3& b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

Float3 AddScaled(const Float3& a, const Float3& b, float scale) {
  return {a[0] + b[0] * scale, a[1] + b[1] * scale, a[2] + b[2] * scale};
}

Float3 Sub(const Float3& a, const Float3& b) { return AddScaled(a, b, -1); }

Float3 Cross(const Float3& a, const Float3& b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2],
          a[0] * b[1] - a[1] * b[0]};
}

Float3 Normalized(const Float3& v) {
  const float length = std::sqrt(Dot(v, v));
  if (length < 1e-10f) return {0, 0, 1};
  return {v[0] / length, v[1] / length, v[2] / length};
}

Float3 Axis(const Float9& rotation, size_t column) {
  return {rotation[column], rotation[3 + column], rotation[6 + column]};
}

// Mirrors a direction at a plane with unit normal `normal`.
Float3 Mirrored(const Float3& v, const Float3& normal) {
  return AddScaled(v, normal, -2 * Dot(v, normal));
}

// ------------------------------------------------------------------- camera

void TakeCamera(const mjvScene& scene, Snapshot& s) {
  const mjvGLCamera camera = AverageCamera(scene.camera[0], scene.camera[1]);
  if (camera.orthographic != 0) {
    throw UnsupportedScene(
        "raycast: an orthographic camera cannot be drawn; hint: use the "
        "renderer gl");
  }
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
  const float left = (camera.frustum_center - half_width) / camera.frustum_near;
  const float top = camera.frustum_top / camera.frustum_near;
  s.slope_x =
      2 * half_width / camera.frustum_near / static_cast<float>(s.width);
  s.slope_y = height / camera.frustum_near / static_cast<float>(s.height);
  s.rays.origin = ToFloat3(camera.pos);
  s.rays.base = AddScaled(AddScaled(forward, right, left), up, top);
  s.rays.per_x = AddScaled({}, right, s.slope_x);
  s.rays.per_y = AddScaled({}, up, -s.slope_y);
}

// ------------------------------------------------------------------- lights

// Axes of the shadow map's square, as mjr_render chooses them.
void SetShadowAxes(Light& light) {
  Float3 up = Cross(light.direction, {-1, 0, 0});
  if (Dot(up, up) <= 0.01f) up = Cross(light.direction, {0, 1, 0});
  light.shadow_x = Normalized(Cross(light.direction, Normalized(up)));
  light.shadow_y = Normalized(Cross(light.shadow_x, light.direction));
}

Light TakeLight(const mjModel& model, const mjvLight& from, float near_depth) {
  Light light;
  light.is_directional = from.type == mjLIGHT_DIRECTIONAL;
  light.casts_shadow = from.castshadow != 0 && model.vis.quality.shadowsize > 0;
  light.position = ToFloat3(from.pos);
  light.direction = Normalized(ToFloat3(from.dir));
  light.ambient = ToFloat3(from.ambient);
  light.diffuse = ToFloat3(from.diffuse);
  light.specular = ToFloat3(from.specular);
  light.shadow_near = near_depth;
  SetShadowAxes(light);
  if (light.is_directional) {
    light.attenuation = {1, 0, 0};
    light.shadow_half =
        static_cast<float>(model.stat.extent) * model.vis.map.shadowclip;
    return light;
  }
  light.attenuation = ToFloat3(from.attenuation);
  constexpr double kRadians = std::numbers::pi / 180;
  // OpenGL knows cutoffs up to 90 degrees and 180, a light without a cone,
  // which it keeps where another one is set
  light.cos_cutoff =
      from.cutoff > 90
          ? -2.0f
          : static_cast<float>(std::cos(double{from.cutoff} * kRadians));
  light.exponent = from.exponent;
  const double angle =
      std::min(2.0 * from.cutoff * model.vis.map.shadowscale, 160.0);
  light.shadow_half = static_cast<float>(std::tan(0.5 * angle * kRadians));
  return light;
}

void TakeLights(const mjModel& model, const mjvScene& scene, Snapshot& s) {
  s.lights.clear();
  for (int i = 0; i < std::min(scene.nlight, kMaxLights); ++i) {
    const mjvLight& light = scene.lights[i];
    // mjr_render leaves out point and image lights
    if (light.type != mjLIGHT_DIRECTIONAL && light.type != mjLIGHT_SPOT) {
      continue;
    }
    s.lights.push_back(TakeLight(model, light, s.near_depth));
  }
  // MuJoCo's light of last resort
  const float ambient = scene.nlight > 0 ? 0.0f : 0.3f;
  s.global_ambient = {ambient, ambient, ambient};
}

// --------------------------------------------------------------- primitives

// The cells of one side of a plane, as MuJoCo's display list has them:
// `half` is half the side, `cell` the plane's third size.
PlaneGrid MakeGrid(double half, double cell, double zfar, double repeat) {
  constexpr int kMaxCells = mjMAXPLANEGRID;
  PlaneGrid grid;
  if (half > 0) {
    const double half_step = std::max(cell, half / (kMaxCells - 2));
    auto count = static_cast<int>(
        std::floor(half / std::max(double{mjMINVAL}, half_step)));
    count -= count % 2;
    grid.half = static_cast<float>(half);
    grid.pad = static_cast<float>(half - count * half_step);
    grid.step = static_cast<float>(2 * half_step);
    grid.num_cells = count + 2;
    return grid;
  }
  // an infinite side
  const double unit = repeat > 0 ? 2 / repeat : 2.1 * zfar / (kMaxCells - 2);
  const double step = (2.1 * zfar + 2 * unit) / kMaxCells;
  constexpr int kMiddle = kMaxCells / 2;
  grid.half = static_cast<float>(step * kMiddle);
  grid.pad = 0;
  grid.step = static_cast<float>(step);
  grid.num_cells = kMaxCells + 2;
  return grid;
}

Shape ShapeOf(const mjvGeom& geom) {
  switch (geom.type) {
    case mjGEOM_PLANE:
      return Shape::kPlane;
    case mjGEOM_SPHERE:
    case mjGEOM_ELLIPSOID:
      return Shape::kEllipsoid;
    case mjGEOM_CAPSULE:
      return Shape::kCapsule;
    case mjGEOM_CYLINDER:
      return Shape::kCylinder;
    case mjGEOM_BOX:
      return Shape::kBox;
    case mjGEOM_HFIELD:
    case mjGEOM_SKIN:
    case mjGEOM_FLEX:
      return Shape::kTriangles;
    case mjGEOM_MESH:
    case mjGEOM_SDF:
      // odd numbers stand for convex hulls
      if (geom.dataid % 2 == 0) return Shape::kTriangles;
      break;
    default:
      break;
  }
  struct Name {
    int type;
    const char* name;
  };
  constexpr std::array<Name, 8> kNames{{{mjGEOM_MESH, "convex hull of a mesh"},
                                        {mjGEOM_SDF, "convex hull of a mesh"},
                                        {mjGEOM_ARROW, "arrow"},
                                        {mjGEOM_ARROW1, "arrow"},
                                        {mjGEOM_ARROW2, "arrow"},
                                        {mjGEOM_LINE, "line"},
                                        {mjGEOM_LINEBOX, "line box"},
                                        {mjGEOM_TRIANGLE, "triangle"}}};
  const char* name = "geom";
  for (const Name& entry : kNames) {
    if (entry.type == geom.type) name = entry.name;
  }
  throw UnsupportedScene(
      fmt::format("raycast: the scene has a {} (object {}), which cannot be "
                  "drawn; hint: use the renderer gl",
                  name, geom.objid));
}

// Half sides of the box around a primitive, in local coordinates.
Float3 HalfBox(const Primitive& p) {
  switch (p.shape) {
    case Shape::kPlane:
      return {p.grid[0].half, p.grid[1].half, 0};
    case Shape::kCapsule:
      return {p.size[0], p.size[0], p.size[2] + p.size[0]};
    case Shape::kTriangles:
      return p.triangles->half_box();
    default:
      return p.size;
  }
}

// Divisor that turns local coordinates into unit coordinates.
Float3 UnitSize(const Primitive& p) {
  switch (p.shape) {
    case Shape::kCapsule:
      return {p.size[0], p.size[0], p.size[0]};
    case Shape::kCylinder:
      return {p.size[0], p.size[1], 1};
    case Shape::kPlane:
    case Shape::kTriangles:
      return {1, 1, 1};
    default:
      return p.size;
  }
}

void SetUnitCoordinates(Primitive& p) {
  const Float3 unit = UnitSize(p);
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      p.world_to_unit[3 * i + j] = p.rotation[3 * j + i] / unit[i];
    }
  }
  p.unit_half_length = p.size[2] / unit[2];
}

// The texture of a geom and how local coordinates become its coordinates.
void SetTexture(const mjModel& model, const mjvGeom& geom, const Assets& assets,
                Primitive& p) {
  int id = -1;
  bool is_uniform = false;
  std::array<float, 2> repeat{};
  if (geom.matid < 0) return;
  if (geom.texid >= 0) {
    id = geom.texid;
    is_uniform = geom.texuniform != 0;
    repeat = {geom.texrepeat[0], geom.texrepeat[1]};
  } else {
    id = model.mat_texid[mjNTEXROLE * geom.matid + mjTEXROLE_RGB];
    is_uniform = model.mat_texuniform[geom.matid] != 0;
    repeat = {model.mat_texrepeat[2 * geom.matid],
              model.mat_texrepeat[2 * geom.matid + 1]};
  }
  if (id < 0) return;
  const Texture& texture = *assets.textures[static_cast<size_t>(id)];
  // texture coordinates look up flat textures only
  if (texture.is_missing() || (texture.is_cube && geom.texcoord != 0)) return;
  if (texture.has_alpha) {
    throw UnsupportedScene(fmt::format(
        "raycast: texture {} has transparent texels, which cannot be drawn; "
        "hint: use the renderer gl",
        id));
  }
  p.texture = &texture;

  if (texture.is_cube) {
    // object coordinates: local ones over the size
    for (size_t i = 0; i < 3; ++i) {
      const float size = geom.size[i];
      // display lists of triangles are not scaled
      if (p.shape == Shape::kTriangles) {
        p.texture_scale[i] = is_uniform ? size : 1.0f;
      } else {
        p.texture_scale[i] = is_uniform || size <= 0 ? 1.0f : 1.0f / size;
      }
    }
    return;
  }
  p.has_corner_coordinates = p.shape == Shape::kTriangles
                                 ? geom.texcoord != 0
                                 : p.shape != Shape::kPlane;
  const bool is_infinite = geom.size[0] <= 0 || geom.size[1] <= 0;
  for (size_t i = 0; i < 2; ++i) {
    const float size = geom.size[i];
    if (p.has_corner_coordinates) {
      p.texture_scale[i] = repeat[i] * (is_uniform && size > 0 ? size : 1.0f);
      continue;
    }
    // local coordinates: s runs from left to right, t from far to near
    const float sign = i == 0 ? 1.0f : -1.0f;
    const float scale =
        repeat[i] * (is_uniform || size <= 0 ? 0.5f : 0.5f / size);
    p.texture_scale[i] = sign * scale;
    // over the whole of a plane; else from its middle
    const bool is_whole = p.shape == Shape::kPlane && !is_infinite;
    p.texture_offset[i] = is_whole ? scale * size : -0.5f;
    if (p.shape == Shape::kPlane && is_infinite && size > 0) {
      p.texture_offset[i] += scale * size;
    }
  }
}

// Whether a point lies behind a plane.
bool IsBehind(const Primitive& plane, const Float3& point) {
  return Dot(Sub(point, plane.position), Axis(plane.rotation, 2)) < 0;
}

// The triangles of a geom; `moving` keeps those of this state.
const TriangleSet* TrianglesOf(const mjModel& model, const mjvScene& scene,
                               const mjvGeom& geom, const Assets& assets,
                               std::unique_ptr<TriangleSet>& moving) {
  switch (geom.type) {
    case mjGEOM_HFIELD:
      return &assets.height_fields[static_cast<size_t>(geom.dataid)];
    case mjGEOM_SKIN: {
      if (moving == nullptr) moving = std::make_unique<TriangleSet>();
      *moving = assets.skins[static_cast<size_t>(geom.objid)];
      MoveSkin(model, scene, geom.objid, *moving);
      return moving.get();
    }
    case mjGEOM_FLEX: {
      const bool has_faces =
          scene.flexskinopt != 0 && scene.flexfaceused[geom.objid] > 0;
      if (!has_faces && geom.size[0] > 0 &&
          (scene.flexvertopt != 0 || scene.flexedgeopt != 0)) {
        throw UnsupportedScene(fmt::format(
            "raycast: flex {} is drawn as vertices and edges, which cannot be "
            "drawn; hint: use the renderer gl",
            geom.objid));
      }
      moving = std::make_unique<TriangleSet>(
          MakeFlex(scene, geom.objid, geom.texcoord != 0 && geom.matid >= 0));
      return moving.get();
    }
    default:
      return &assets.meshes[static_cast<size_t>(geom.dataid / 2)];
  }
}

Primitive TakeGeom(const mjModel& model, const mjvScene& scene,
                   const mjvGeom& geom, const Assets& assets, const Float3& eye,
                   std::unique_ptr<TriangleSet>& moving) {
  Primitive p;
  p.shape = ShapeOf(geom);
  p.position = ToFloat3(geom.pos);
  for (size_t i = 0; i < 9; ++i) p.rotation[i] = geom.mat[i];
  p.size = ToFloat3(geom.size);
  for (size_t i = 0; i < 4; ++i) p.rgba[i] = geom.rgba[i];
  p.emission = geom.emission;
  p.specular = geom.specular;
  p.shininess = geom.shininess * 128.0f;
  p.reflectance = geom.reflectance;
  p.casts_shadow = geom.category != mjCAT_DECOR;
#if mjVERSION_HEADER >= 4000000
  p.casts_shadow = p.casts_shadow && geom.castshadow != 0;
#endif
  p.is_transparent = geom.rgba[3] < 0.995f;

  if (p.shape == Shape::kPlane) {
    const double zfar = double{model.vis.map.zfar} * model.stat.extent;
    for (size_t i = 0; i < 2; ++i) {
      if (geom.dataid >= 0) {
        const double repeat =
            geom.matid >= 0
                ? model.mat_texrepeat[2 * geom.matid + static_cast<int>(i)]
                : 0.0;
        p.grid[i] = MakeGrid(p.size[i], p.size[2], zfar, repeat);
      } else {
        p.grid[i].half = p.size[i];
        p.grid[i].step =
            2 * p.size[i] / static_cast<float>(model.vis.quality.numquads);
        p.grid[i].num_cells = model.vis.quality.numquads + 2;
      }
    }
    for (PlaneGrid& grid : p.grid) {
      grid.per_pad = 1 / std::max(grid.pad, 1e-20f);
      grid.per_step = 1 / std::max(grid.step, 1e-20f);
    }
    // seen from behind it lets more through
    if (IsBehind(p, eye)) {
      p.is_transparent = true;
      p.rgba[3] *= 0.3f;
    }
  }
  if (p.shape == Shape::kTriangles) {
    p.triangles = TrianglesOf(model, scene, geom, assets, moving);
    if (geom.type == mjGEOM_SKIN || geom.type == mjGEOM_FLEX) {
      // in the world's coordinates
      p.position = {};
      p.rotation = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    }
  }
  SetUnitCoordinates(p);
  SetTexture(model, geom, assets, p);
  p.half_box = HalfBox(p);
  const Float3& half = p.half_box;
  p.bounding_radius = p.shape == Shape::kCapsule ? half[2]
                      : p.shape == Shape::kEllipsoid
                          ? std::max({half[0], half[1], half[2]})
                          : std::sqrt(Dot(half, half));
  return p;
}

// Where a primitive can be seen.
struct Extent {
  ScreenRect rect;
  float far_depth = 0;
};

// The rectangle of the picture that holds the box around `p`, or its image in
// the mirror. A box that reaches behind the camera may be anywhere.
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
    if (depth < s.near_depth) return everything;
    const float x = (Dot(v, right) / depth - left) / s.slope_x;
    const float y = (top - Dot(v, up) / depth) / s.slope_y;
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
// in a corner of the picture.
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
  return s.sky_distance / std::sqrt(longest2);
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
    return;
  }
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
  haze.color = 0;
  for (int i = 0; i < 3; ++i) {
    const float v = std::clamp(model.vis.rgba.haze[i], 0.0f, 1.0f);
    haze.color |= static_cast<uint32_t>(v * 255 + 0.5f) << (10 * i);
  }
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

float PlaneGrid::Line(int k) const {
  if (k <= 0) return -half;
  return std::min(half, -half + pad + static_cast<float>(k - 1) * step);
}

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
    s.primitives.push_back(TakeGeom(model, scene, scene.geoms[i], assets,
                                    s.rays.origin, s.moving[i]));
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
  const float nearest_sky = NearestSky(s);
  for (Primitive& p : s.primitives) {
    const Extent extent = ExtentOf(s, p, /*is_mirrored=*/false);
    p.rect = extent.rect;
    p.may_meet_sky =
        s.sky != nullptr && extent.far_depth >= 0.99f * nearest_sky;
  }
  if (s.mirror < 0) return;
  const Primitive& mirror = s.primitives[static_cast<size_t>(s.mirror)];
  for (Primitive& p : s.primitives) {
    // OpenGL draws the side of a plane that the camera sees, in the mirror, too
    if (p.shape == Shape::kPlane &&
        IsBehind(p, s.rays.origin) != IsBehind(p, s.mirrored_rays.origin)) {
      p.mirrored_rect = {};
      continue;
    }
    p.mirrored_rect =
        Overlap(ExtentOf(s, p, /*is_mirrored=*/true).rect, mirror.rect);
  }
}

}  // namespace replicant::env::raycast
