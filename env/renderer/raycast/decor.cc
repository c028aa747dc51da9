#include "env/renderer/raycast/decor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "env/renderer/raycast/float3.h"

namespace replicant::env::raycast {
namespace {

using Point = TriangleSet::Point;
using Triangle = TriangleSet::Triangle;

struct Corner {
  Point place, normal;
};

// Where a part of a display list stands: stretched, then turned, then moved.
struct Placement {
  Point scale{1, 1, 1};
  std::array<mjtNum, 9> rotation{1, 0, 0, 0, 1, 0, 0, 0, 1};
  Point shift{};

  Point Turn(const Point& v) const {
    Point turned;
    for (size_t i = 0; i < 3; ++i) {
      turned[i] = static_cast<float>(rotation[3 * i] * v[0] +
                                     rotation[3 * i + 1] * v[1] +
                                     rotation[3 * i + 2] * v[2]);
    }
    return turned;
  }
  Corner operator()(const Corner& corner) const {
    Point place = corner.place;
    Point normal = corner.normal;
    for (size_t i = 0; i < 3; ++i) {
      place[i] *= scale[i];
      normal[i] /= scale[i];
    }
    place = Turn(place);
    for (size_t i = 0; i < 3; ++i) place[i] += shift[i];
    return {place, Turn(normal)};
  }
};

// Triangles of MuJoCo's round display lists.
class RoundParts {
 public:
  explicit RoundParts(const mjModel& model)
      : num_slices_(model.vis.quality.numslices),
        num_stacks_(model.vis.quality.numstacks) {}

  int num_stacks() const { return num_stacks_; }

  // A tube of radius 1 from z = -1 to 1, of `num_rows` rows of cells.
  void AddTube(const Placement& placement, int num_rows) {
    AddCells(placement, num_rows, [&](float cos, float sin, int row) {
      const float z = Share(2 * row, num_rows) - 1;
      return Corner{{cos, sin, z}, {cos, sin, 0}};
    });
  }
  // A cone of radius 1 from z = 0 to 1.
  void AddCone(const Placement& placement) {
    AddCells(placement, num_stacks_, [&](float cos, float sin, int row) {
      const float radius = 1 - Share(row, num_stacks_);
      return Corner{{cos * radius, sin * radius, 1 - radius}, {cos, sin, 1}};
    });
  }
  void AddBall(const Placement& placement) {
    const int num_rows = num_stacks_ / 2 * 2;
    AddCells(placement, num_rows, [&](float cos, float sin, int row) {
      const float elevation =
          std::numbers::pi_v<float> * (Share(row, num_rows) - 0.5f);
      const float radius = std::cos(elevation);
      const Point place{cos * radius, sin * radius, std::sin(elevation)};
      return Corner{place, place};
    });
  }
  // A disk of radius 1 at `z` that looks up or down (sign 1, -1). Its normal is
  // as long as MuJoCo's: the one under a cone has none.
  void AddDisk(const Placement& placement, float z, float sign, float normal) {
    AddCells(placement, 1, [&](float cos, float sin, int row) {
      const float radius = (row == 0) == (sign > 0) ? 1.0f : 0.0f;
      return Corner{{cos * radius, sin * radius, z}, {0, 0, sign * normal}};
    });
  }

  TriangleSet Take() const { return TriangleSet(triangles_); }

 private:
  static float Share(int part, int whole) {
    return static_cast<float>(part) / static_cast<float>(whole);
  }

  // Rows of cells around z; `corner(cos, sin, row)`, from below to above as
  // seen from outside.
  template <typename MakeCorner>
  void AddCells(const Placement& placement, int num_rows,
                const MakeCorner& corner) {
    for (int row = 0; row < num_rows; ++row) {
      for (int slice = 0; slice < num_slices_; ++slice) {
        std::array<Corner, 4> cell;
        for (size_t k = 0; k < 4; ++k) {
          const int right = k == 1 || k == 2 ? 1 : 0;
          const float angle =
              2 * std::numbers::pi_v<float> * Share(slice + right, num_slices_);
          cell[k] = placement(
              corner(std::cos(angle), std::sin(angle), row + (k < 2 ? 0 : 1)));
        }
        // as Mesa divides a quad
        Add(cell[0], cell[1], cell[3]);
        Add(cell[1], cell[2], cell[3]);
      }
    }
  }
  void Add(const Corner& a, const Corner& b, const Corner& c) {
    // at a pole
    if (a.place == b.place || b.place == c.place || c.place == a.place) return;
    triangles_.push_back({.corner = {a.place, b.place, c.place},
                          .normal = {a.normal, b.normal, c.normal}});
  }

  int num_slices_, num_stacks_;
  std::vector<Triangle> triangles_;
};

void AddArrow(const mjvGeom& geom, RoundParts& parts) {
  const float unit = geom.size[2] / 6;
  const Placement shaft{.scale = {geom.size[0], geom.size[1], unit},
                        .shift = {0, 0, unit}};
  parts.AddTube(shaft, parts.num_stacks());
  parts.AddDisk(shaft, -1, -1, 1);
  parts.AddDisk(shaft, 1, 1, 1);
  const float wide = geom.type == mjGEOM_ARROW ? 1.75f : 1.0f;
  const Placement head{
      .scale = {wide * geom.size[0], wide * geom.size[1], unit},
      .shift = {0, 0, 2 * unit}};
  parts.AddCone(head);
  parts.AddDisk(head, 0, -1, 0);
}

void AddDoubleArrow(const mjvGeom& geom, RoundParts& parts) {
  const float unit = geom.size[2] / 3;
  parts.AddTube({.scale = {geom.size[0], geom.size[1], unit}},
                parts.num_stacks());
  for (const float sign : {1.0f, -1.0f}) {
    const Placement head{
        .scale = {1.75f * geom.size[0], 1.75f * geom.size[1], 0.5f * unit},
        .rotation = {1, 0, 0, 0, sign, 0, 0, 0, sign},
        .shift = {0, 0, sign * unit}};
    parts.AddCone(head);
    parts.AddDisk(head, 0, -1, 0);
  }
}

// Seen from both sides, with one normal.
TriangleSet MakeTriangle(const mjvGeom& geom) {
  const Point a{};
  const Point b{geom.size[0], 0, 0};
  const Point c{0, geom.size[1], 0};
  const std::array<Point, 3> normal{{{0, 0, 1}, {0, 0, 1}, {0, 0, 1}}};
  return TriangleSet({{.corner = {a, b, c}, .normal = normal},
                      {.corner = {a, c, b}, .normal = normal}});
}

// Adds a line of `width` pixels between two points of the world.
void AddLine(const Snapshot& view, Point from, Point to, float width,
             std::vector<Triangle>& triangles) {
  const auto axis = [&](size_t k) {
    return Point{view.orientation[3 * k], view.orientation[3 * k + 1],
                 view.orientation[3 * k + 2]};
  };
  const Point forward = axis(0);
  const Point right = axis(1);
  const Point up = axis(2);
  const auto depth = [&](const Point& at) {
    return Dot(Sub(at, view.rays.origin), forward);
  };
  // the part before the near plane is not seen
  const float begin = depth(from);
  const float end = depth(to);
  if (std::max(begin, end) <= view.near_depth) return;
  const auto cut = [&](Point& behind, const Point& other, float at, float far) {
    if (at >= view.near_depth) return;
    behind = AddScaled(behind, Sub(other, behind),
                       (view.near_depth - at) / (far - at));
  };
  cut(from, to, begin, end);
  cut(to, from, end, begin);
  const auto scale = [&](const Point& at) {
    return view.rays.are_parallel ? 1.0f : depth(at);
  };
  // direction in the picture, in pixels
  const auto x_of = [&](const Point& at) {
    return Dot(Sub(at, view.rays.origin), right) / scale(at) / view.slope_x;
  };
  const auto y_of = [&](const Point& at) {
    return Dot(Sub(at, view.rays.origin), up) / scale(at) / view.slope_y;
  };
  const float x = x_of(to) - x_of(from);
  const float y = y_of(to) - y_of(from);
  const float length = std::sqrt(x * x + y * y);
  if (length < 1e-3f) return;
  // across the line, per depth
  const float half = 0.5f * width / length;
  const Point across = AddScaled(AddScaled({}, right, -half * y * view.slope_x),
                                 up, half * x * view.slope_y);
  const auto side = [&](const Point& at, float sign) {
    return AddScaled(at, across, sign * scale(at));
  };
  const Point a = side(from, -1), b = side(to, -1);
  const Point c = side(to, 1), d = side(from, 1);
  const std::array<std::array<Point, 3>, 4> corners{
      {{a, b, c}, {a, c, d}, {a, c, b}, {a, d, c}}};
  for (const std::array<Point, 3>& corner : corners) {
    triangles.push_back(
        {.corner = corner, .normal = {forward, forward, forward}});
  }
}

// The corner of a box that the bits of `number` name, in the world.
Point BoxCorner(const mjvGeom& geom, unsigned number) {
  Point at = ToFloat3(geom.pos);
  for (size_t k = 0; k < 3; ++k) {
    const float half = geom.size[k];
    const float to = (number >> k & 1) != 0 ? half : -half;
    for (size_t i = 0; i < 3; ++i) at[i] += geom.mat[3 * i + k] * to;
  }
  return at;
}

}  // namespace

TriangleSet MakeLines(const mjModel& model, const Snapshot& view,
                      const mjvGeom& geom) {
  std::vector<Triangle> triangles;
  const float unit = model.vis.global.linewidth;
  if (geom.type == mjGEOM_LINE) {
    const Point from = ToFloat3(geom.pos);
    const Point along{geom.mat[2], geom.mat[5], geom.mat[8]};
    AddLine(view, from, AddScaled(from, along, geom.size[2]),
            geom.size[0] * unit, triangles);
    return TriangleSet(triangles);
  }
  for (unsigned corner = 0; corner < 8; ++corner) {
    for (unsigned k = 0; k < 3; ++k) {
      const unsigned other = corner | 1u << k;
      if (other == corner) continue;
      AddLine(view, BoxCorner(geom, corner), BoxCorner(geom, other),
              1.5f * unit, triangles);
    }
  }
  return TriangleSet(triangles);
}

TriangleSet MakeDecor(const mjModel& model, const mjvGeom& geom) {
  if (geom.type == mjGEOM_TRIANGLE) return MakeTriangle(geom);
  RoundParts parts(model);
  if (geom.type == mjGEOM_ARROW2) {
    AddDoubleArrow(geom, parts);
  } else {
    AddArrow(geom, parts);
  }
  return parts.Take();
}

TriangleSet MakeHull(const mjModel& model, int id) {
  std::vector<Triangle> triangles;
  if (model.mesh_graphadr[id] < 0) return TriangleSet(triangles);
  // numbers of vertices and faces, three tables of the vertices' edges, faces
  const int* graph = model.mesh_graph + model.mesh_graphadr[id];
  const int num_faces = graph[1];
  const int* face = graph + 2 + 3 * graph[0] + 3 * num_faces;
  const float* vertices = model.mesh_vert + 3 * model.mesh_vertadr[id];
  triangles.resize(static_cast<size_t>(num_faces));
  for (Triangle& t : triangles) {
    for (size_t k = 0; k < 3; ++k) {
      const int vertex = *face++;
      const float* at = vertices + 3 * vertex;
      t.corner[k] = {at[0], at[1], at[2]};
      if (model.mesh_texcoordadr[id] < 0) continue;
      const float* st =
          model.mesh_texcoord + 2 * (model.mesh_texcoordadr[id] + vertex);
      t.texture_coordinate[k] = {st[0], st[1]};
    }
    t.normal.fill(FaceNormal(t.corner[0], t.corner[1], t.corner[2]));
  }
  return TriangleSet(triangles);
}

TriangleSet MakeFlexFrame(const mjModel& model, const mjvScene& scene,
                          const mjvGeom& geom) {
  RoundParts parts(model);
  const int id = geom.objid;
  const float radius = geom.size[0];
  const float* vertices = scene.flexvert + 3 * scene.flexvertadr[id];
  for (int v = 0; scene.flexvertopt != 0 && v < scene.flexvertnum[id]; ++v) {
    const float* at = vertices + 3 * v;
    parts.AddBall(
        {.scale = {radius, radius, radius}, .shift = {at[0], at[1], at[2]}});
  }
  const int* edge = scene.flexedge + 2 * scene.flexedgeadr[id];
  for (int e = 0; scene.flexedgeopt != 0 && e < scene.flexedgenum[id];
       ++e, edge += 2) {
    const float* from = vertices + 3 * edge[0];
    const float* to = vertices + 3 * edge[1];
    std::array<mjtNum, 3> along;
    Placement placement;
    for (size_t i = 0; i < 3; ++i) {
      along[i] = to[i] - from[i];
      placement.shift[i] = 0.5f * (from[i] + to[i]);
    }
    const mjtNum length = mju_normalize3(along.data());
    std::array<mjtNum, 4> quat;
    mju_quatZ2Vec(quat.data(), along.data());
    mju_quat2Mat(placement.rotation.data(), quat.data());
    placement.scale = {radius, radius, static_cast<float>(0.5 * length)};
    // Differs from MuJoCo, which lights `numstacks` rows: an edge is short.
    parts.AddTube(placement, 1);
  }
  return parts.Take();
}

}  // namespace replicant::env::raycast
