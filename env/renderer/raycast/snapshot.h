#pragma once

#include <mujoco/mujoco.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "env/renderer/raycast/samples.h"
#include "env/renderer/raycast/texture.h"
#include "env/renderer/raycast/triangles.h"

namespace replicant::env::raycast {

using Float3 = std::array<float, 3>;
// row-major
using Float9 = std::array<float, 9>;

// Shapes that a ray can hit. Local coordinates have their origin at the geom.
enum class Shape {
  kPlane,      // z = 0, |x| <= size[0], |y| <= size[1], seen from either side
  kEllipsoid,  // half axes `size`; spheres too
  kCapsule,    // radius size[0], half length of the cylinder size[2] along z
  kCylinder,   // radii size[0], size[1], half length size[2] along z
  kBox,        // half sides `size`
  kTriangles,  // a mesh or a height field
};

// The division of one side of a plane into cells whose corners are lit: a
// border cell of width `pad` at either end, with cells of width `step` between
// them.
struct PlaneGrid {
  float half = 0;  // the side reaches from -half to half
  float pad = 0;
  float step = 1;
  int num_cells = 1;
  // 1 / pad (at most 1e20) and 1 / step
  float per_pad = 0, per_step = 1;

  // Coordinate of grid line k, 0 <= k <= num_cells.
  float Line(int k) const;
};

// Bounds [x0, x1) x [y0, y1) of a primitive in picture coordinates.
struct ScreenRect {
  int x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  bool empty() const { return x0 >= x1 || y0 >= y1; }
};

// Rays through the picture. At picture coordinates (x, y), x to the right, y
// down, in pixels, the fan is
//   base + x * per_x + y * per_y.
// The rays of a perspective camera start at `origin`, and the fan is their
// direction. Those of an orthographic camera are parallel: all have the
// direction `forward`, and the fan leads from `origin` to where they start. The
// component of a direction along the view direction is 1: a hit's ray parameter
// is its depth.
struct Rays {
  Float3 origin;  // the camera's place
  Float3 base;
  Float3 per_x;
  Float3 per_y;
  bool are_parallel = false;
  Float3 forward{};  // the view direction, unit
};

// A light; sums and products follow OpenGL's fixed pipeline.
struct Light {
  bool is_directional = false;
  bool casts_shadow = false;
  Float3 position{};   // of a spot light; of the shadow map's eye otherwise
  Float3 direction{};  // unit, away from the light
  Float3 ambient{}, diffuse{}, specular{};
  Float3 attenuation{};  // constant, linear, quadratic
  float cos_cutoff = -1;
  float exponent = 0;
  // Only points inside this square about the light's axis can be shadowed
  // (spot: slope to the axis, directional: distance); its sides lie along
  // `shadow_x` and `shadow_y`.
  float shadow_half = 0;
  Float3 shadow_x{}, shadow_y{};
  // casters nearer to the light than this cast no shadow
  float shadow_near = 0;
};

// One geom of the scene.
struct Primitive {
  Shape shape = Shape::kEllipsoid;
  Float3 position{};
  Float9 rotation{};  // local to world
  Float3 size{};
  Float3 half_box{};  // half sides of the box around it, local
  float bounding_radius = 0;

  // Unit coordinates for tracing rays: local coordinates divided by the size,
  // so that an ellipsoid becomes the unit ball, a box the cube from -1 to 1, a
  // capsule one of radius 1 and a cylinder one of radius 1 and its own length;
  // planes and triangles are unchanged.
  Float9 world_to_unit{};      // of directions
  float unit_half_length = 0;  // kCapsule, kCylinder

  std::array<float, 4> rgba{};
  float emission = 0;
  float specular = 0;
  float shininess = 0;  // exponent
  float reflectance = 0;
  bool is_transparent = false;
  bool casts_shadow = true;
  // has its own colour in every pass, whatever shines on it
  bool is_unlit = false;

  // Texture coordinates are the corners' own or local coordinates, times
  // `texture_scale` plus `texture_offset`; null without a texture.
  const Texture* texture = nullptr;
  bool has_corner_coordinates = false;
  Float3 texture_scale{}, texture_offset{};

  std::array<PlaneGrid, 2> grid;           // kPlane
  const TriangleSet* triangles = nullptr;  // kTriangles
  ScreenRect rect;                         // in the picture
  ScreenRect mirrored_rect;  // in the mirror, if the scene has one
  // whether parts of it may lie behind the painted sky
  bool may_meet_sky = false;
};

// Fog that thickens linearly with depth: a colour counts with the share
//   (end - depth) / (end - start), clamped to [0, 1],
// and the fog's colour with the rest. The sky is in the fog, too; a background
// picture is not.
struct Fog {
  bool is_on = false;
  float end = 0;
  float per_depth = 0;  // 1 / (end - start)
  Float3 color{};
  bool operator==(const Fog&) const = default;
};

// The band of haze that MuJoCo draws at the horizon of an infinite plane: a
// cone of `edges` sides that rises from the plane to the height of the eye,
// there at the distance of the sky.
struct Haze {
  bool is_seen = false;
  Float9 to_plane{};    // from directions to the plane's axes
  float elevation = 0;  // of the eye over the plane
  float slope = 0;      // 1 / elevation per radius: how far the cone narrows
  float middle = 0;     // height of full haze, as a part of the elevation
  Float3 color{};
  // a point of side k at radius R (of the polygon's corners) satisfies
  // x edge_x[k] + y edge_y[k] = R
  std::vector<float> edge_x, edge_y;
};

// All inputs of one picture.
//
// The camera's projection, the lights and the geoms in MuJoCo's order, which
// decides ties.
struct Snapshot {
  int height = 0;
  int width = 0;
  float near_depth = 0;
  float far_depth = 0;
  // view direction, right and up; the sky depends only on these
  Float9 orientation{};
  // sides of a pixel: at depth 1, or at every depth if rays are parallel
  float slope_x = 0, slope_y = 0;

  const SamplePlaces* samples = &kFourSamples;
  Rays rays;
  // the rays after the mirror, when `mirror` >= 0
  Rays mirrored_rays;
  // index of the first reflecting primitive, -1 without one: a plane or a box,
  // whose upper side reflects
  int mirror = -1;
  Float3 mirror_position{}, mirror_normal{};

  std::vector<Light> lights;
  Float3 global_ambient{};
  std::vector<Primitive> primitives;
  // transparent primitives from near to far
  std::vector<int> transparent;

  const Texture* sky = nullptr;
  // seen in the sky's place: [height, width, 3]; null: the sky
  const uint8_t* background = nullptr;
  // half height and radius of the cylinder with the sky's picture
  float sky_distance = 0;

  Haze haze;
  Fog fog;

  // triangles made for this picture, by index of the primitive
  std::vector<std::unique_ptr<TriangleSet>> moving;

  // Whether the samples of a pixel are kept apart until the end.
  bool keeps_samples() const {
    return !transparent.empty() || haze.is_seen || is_box_mirror();
  }
  bool is_box_mirror() const {
    return mirror >= 0 &&
           primitives[static_cast<size_t>(mirror)].shape == Shape::kBox;
  }

  // slices and stacks of curved shapes, squares per side of boxes
  int num_slices = 0, num_stacks = 0, num_quads = 0;
};

// The constant assets of a model, by id.
struct Assets {
  std::vector<std::shared_ptr<const Texture>> textures;
  std::vector<TriangleSet> meshes;
  std::vector<TriangleSet> height_fields;
  std::vector<TriangleSet> skins;  // in the pose of the model
};

// Converts `scene`, a picture of [height, width], to `snapshot`, which points
// into `assets`. Reuses the memory of `snapshot`. Throws UnsupportedScene if
// the scene cannot be drawn.
void TakeSnapshot(const mjModel& model, const mjvScene& scene,
                  const Assets& assets, int height, int width,
                  Snapshot& snapshot);

}  // namespace replicant::env::raycast
