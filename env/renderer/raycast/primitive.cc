#include "env/renderer/raycast/primitive.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "env/renderer/raycast/decor.h"
#include "env/renderer/raycast/float3.h"
#include "env/renderer/scene.h"

namespace replicant::env::raycast {
namespace {

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
    case mjGEOM_MESH:
    case mjGEOM_SDF:
    case mjGEOM_ARROW:
    case mjGEOM_ARROW1:
    case mjGEOM_ARROW2:
    case mjGEOM_TRIANGLE:
    case mjGEOM_LINE:
    case mjGEOM_LINEBOX:
      return Shape::kTriangles;
    default:
      break;
  }
  throw UnsupportedScene(
      fmt::format("raycast: the scene has a geom of type {} (object {}), which "
                  "cannot be drawn; hint: use the renderer gl",
                  geom.type, geom.objid));
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

// Whether the triangles of a geom are in the world's coordinates.
bool IsDeformable(const mjvGeom& geom) {
  return geom.type == mjGEOM_SKIN || geom.type == mjGEOM_FLEX;
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
  p.texture = &texture;

  if (texture.is_cube) {
    // object coordinates: local ones over the size
    for (size_t i = 0; i < 3; ++i) {
      const float size = geom.size[i];
      // display lists of triangles and of a plane's own grid are not scaled
      if (p.shape == Shape::kTriangles ||
          (p.shape == Shape::kPlane && geom.dataid >= 0)) {
        p.texture_scale[i] = is_uniform ? size : 1.0f;
      } else {
        p.texture_scale[i] = is_uniform || size <= 0 ? 1.0f : 1.0f / size;
      }
    }
    // for a direction without length Mesa takes this corner
    if (p.shape == Shape::kPlane && p.texture_scale[0] == 0 &&
        p.texture_scale[1] == 0) {
      p.texture_offset = {-1, 1, 1};
    }
    return;
  }
  p.has_corner_coordinates = p.shape == Shape::kTriangles
                                 ? geom.texcoord != 0
                                 : p.shape != Shape::kPlane;
  // only triangles without coordinates take a repeat that is not positive
  if (p.has_corner_coordinates || p.shape == Shape::kPlane) {
    for (float& r : repeat) r = r > 0 ? r : 1.0f;
  }
  if (IsDeformable(geom)) is_uniform = false;
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

// The triangles of a geom; `moving` keeps those of this state.
const TriangleSet* TrianglesOf(const mjModel& model, const mjvScene& scene,
                               const mjvGeom& geom, const Assets& assets,
                               const Snapshot& view,
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
#if mjVERSION_HEADER >= 4000000
      // the faces of one material, of several
      if (geom.dataid >= 0) {
        throw UnsupportedScene(fmt::format(
            "raycast: flex {} has several materials, which cannot be drawn; "
            "hint: use the renderer gl",
            geom.objid));
      }
#endif
      const bool has_faces = scene.flexfaceused[geom.objid] > 0;
      const bool is_skin = scene.flexskinopt != 0 && has_faces;
      const bool has_frame = geom.size[0] > 0 &&
                             (scene.flexvertopt != 0 || scene.flexedgeopt != 0);
      if (has_frame && has_faces && !is_skin) {
        throw UnsupportedScene(fmt::format(
            "raycast: flex {} shows faces and edges together, which cannot be "
            "drawn; hint: use the renderer gl",
            geom.objid));
      }
      const bool has_texcoord = geom.texcoord != 0 && geom.matid >= 0;
      moving = std::make_unique<TriangleSet>(
          has_frame && !has_faces ? MakeFlexFrame(model, scene, geom)
                                  : MakeFlex(scene, geom.objid, has_texcoord));
      return moving.get();
    }
    case mjGEOM_MESH:
    case mjGEOM_SDF:
      // odd numbers stand for convex hulls
      if (geom.dataid % 2 != 0) {
        moving =
            std::make_unique<TriangleSet>(MakeHull(model, geom.dataid / 2));
        return moving.get();
      }
      return &assets.meshes[static_cast<size_t>(geom.dataid / 2)];
    case mjGEOM_LINE:
    case mjGEOM_LINEBOX:
      moving = std::make_unique<TriangleSet>(MakeLines(model, view, geom));
      return moving.get();
    default:
      moving = std::make_unique<TriangleSet>(MakeDecor(model, geom));
      return moving.get();
  }
}

}  // namespace

float PlaneGrid::Line(int k) const {
  if (k <= 0) return -half;
  return std::min(half, -half + pad + static_cast<float>(k - 1) * step);
}

bool IsBehind(const Primitive& plane, const Float3& point) {
  return Dot(Sub(point, plane.position), Axis(plane.rotation, 2)) < 0;
}

Primitive TakeGeom(const mjModel& model, const mjvScene& scene,
                   const mjvGeom& geom, const Assets& assets,
                   const Snapshot& view, std::unique_ptr<TriangleSet>& moving) {
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
  p.casts_shadow = geom.category != mjCAT_DECOR && geom.type != mjGEOM_LINE;
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
    if (IsBehind(p, view.rays.origin)) {
      p.is_transparent = true;
      p.rgba[3] *= 0.3f;
    }
  }
  if (p.shape == Shape::kTriangles) {
    p.triangles = TrianglesOf(model, scene, geom, assets, view, moving);
    p.is_unlit = geom.type == mjGEOM_LINE || geom.type == mjGEOM_LINEBOX;
    if (IsDeformable(geom) || p.is_unlit) {
      p.position = {};
      p.rotation = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    }
  }
  SetUnitCoordinates(p);
  SetTexture(model, geom, assets, p);
  // vertices and edges have none
  if (geom.type == mjGEOM_FLEX && scene.flexfaceused[geom.objid] == 0) {
    p.texture = nullptr;
  }
  p.half_box = HalfBox(p);
  const Float3& half = p.half_box;
  p.bounding_radius = p.shape == Shape::kCapsule ? half[2]
                      : p.shape == Shape::kEllipsoid
                          ? std::max({half[0], half[1], half[2]})
                          : std::sqrt(Dot(half, half));
  return p;
}

}  // namespace replicant::env::raycast
