#include "env/renderer/raycast/triangles.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "env/renderer/raycast/frame.h"

namespace replicant::env::raycast {
namespace {

using Point = TriangleSet::Point;
using Triangle = TriangleSet::Triangle;

Point Sub(const Point& a, const Point& b) {
  return {a[0] - b[0], a[1] - b[1], a[2] - b[2]};
}

float Dot(const Point& a, const Point& b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

Point Cross(const Point& a, const Point& b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2],
          a[0] * b[1] - a[1] * b[0]};
}

Point FaceNormal(const Point& a, const Point& b, const Point& c) {
  const Point n = Cross(Sub(b, a), Sub(c, a));
  const float length = std::sqrt(Dot(n, n));
  if (length < 1e-10f) return {0, 0, 1};
  return {n[0] / length, n[1] / length, n[2] / length};
}

float Middle(const Triangle& t, size_t axis) {
  return t.corner[0][axis] + t.corner[1][axis] + t.corner[2][axis];
}

void AddFlat(const Point& a, const Point& b, const Point& c,
             const Point& normal, std::vector<Triangle>& triangles) {
  triangles.push_back({{a, b, c}, {normal, normal, normal}});
}

// Mesa draws a quad as the triangles 0 1 3 and 1 2 3.
void AddQuad(const std::array<Point, 4>& corner, const Point& normal,
             std::vector<Triangle>& triangles) {
  AddFlat(corner[0], corner[1], corner[3], normal, triangles);
  AddFlat(corner[1], corner[2], corner[3], normal, triangles);
}

}  // namespace

TriangleSet::TriangleSet(std::vector<Triangle> triangles) {
  if (triangles.empty()) return;
  nodes_.reserve(triangles.size());
  Build(triangles, 0, triangles.size());
  for (size_t i = 0; i < 9; ++i) {
    corners_[i].reserve(triangles.size());
    normals_[i].reserve(triangles.size());
    for (const Triangle& t : triangles) {
      corners_[i].push_back(t.corner[i / 3][i % 3]);
      normals_[i].push_back(t.normal[i / 3][i % 3]);
    }
  }
  for (size_t axis = 0; axis < 3; ++axis) {
    half_box_[axis] =
        std::max(std::abs(nodes_[0].low[axis]), std::abs(nodes_[0].high[axis]));
  }
}

int32_t TriangleSet::Build(std::vector<Triangle>& triangles, size_t begin,
                           size_t end) {
  constexpr size_t kLeafSize = 4;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto index = static_cast<int32_t>(nodes_.size());
  Node node{{kInfinity, kInfinity, kInfinity},
            {-kInfinity, -kInfinity, -kInfinity},
            static_cast<int32_t>(begin),
            static_cast<int32_t>(end - begin),
            /*axis=*/0};
  for (size_t i = begin; i < end; ++i) {
    for (const Point& corner : triangles[i].corner) {
      for (size_t axis = 0; axis < 3; ++axis) {
        node.low[axis] = std::min(node.low[axis], corner[axis]);
        node.high[axis] = std::max(node.high[axis], corner[axis]);
      }
    }
  }
  nodes_.push_back(node);
  if (end - begin <= kLeafSize) return index;

  // halve at the median of the longest side
  const Point side = Sub(node.high, node.low);
  const auto axis = static_cast<size_t>(
      std::max_element(side.begin(), side.end()) - side.begin());
  const size_t middle = begin + (end - begin) / 2;
  const auto at = [&](size_t i) {
    return triangles.begin() + static_cast<std::ptrdiff_t>(i);
  };
  std::nth_element(at(begin), at(middle), at(end),
                   [axis](const Triangle& a, const Triangle& b) {
                     return Middle(a, axis) < Middle(b, axis);
                   });
  Build(triangles, begin, middle);
  const int32_t right = Build(triangles, middle, end);
  Node& inner = nodes_[static_cast<size_t>(index)];
  inner.first = right;
  inner.count = 0;
  inner.axis = static_cast<int32_t>(axis);
  return index;
}

TriangleSet MakeMesh(const mjModel& model, int id) {
  std::vector<Triangle> triangles;
  const float* vertices = model.mesh_vert + 3 * model.mesh_vertadr[id];
  const float* normals = model.mesh_normal + 3 * model.mesh_normaladr[id];
  const bool has_texcoord = model.mesh_texcoordadr[id] >= 0;
  const int begin = model.mesh_faceadr[id];
  triangles.reserve(static_cast<size_t>(model.mesh_facenum[id]));
  for (int face = begin; face < begin + model.mesh_facenum[id]; ++face) {
    Triangle t;
    for (size_t k = 0; k < 3; ++k) {
      const int corner = 3 * face + static_cast<int>(k);
      const float* vertex = vertices + 3 * model.mesh_face[corner];
      const float* normal = normals + 3 * model.mesh_facenormal[corner];
      t.corner[k] = {vertex[0], vertex[1], vertex[2]};
      t.normal[k] = {normal[0], normal[1], normal[2]};
    }
    const Point flat = FaceNormal(t.corner[0], t.corner[1], t.corner[2]);
    for (Point& normal : t.normal) {
      if (!has_texcoord && Dot(normal, flat) < 0.8f) normal = flat;
    }
    triangles.push_back(t);
  }
  return TriangleSet(std::move(triangles));
}

TriangleSet MakeHeightField(const mjModel& model, int id) {
  const int rows = model.hfield_nrow[id];
  const int columns = model.hfield_ncol[id];
  const float* heights = model.hfield_data + model.hfield_adr[id];
  std::array<float, 4> size;
  for (size_t i = 0; i < 4; ++i) {
    size[i] =
        static_cast<float>(model.hfield_size[4 * id + static_cast<int>(i)]);
  }
  const auto x_of = [&](int c, int count) {
    return size[0] *
           (2.0f * static_cast<float>(c) / static_cast<float>(count - 1) -
            1.0f);
  };
  const auto y_of = [&](int r, int count) {
    return size[1] *
           (2.0f * static_cast<float>(r) / static_cast<float>(count - 1) -
            1.0f);
  };
  const auto top = [&](int r, int c) {
    return Point{x_of(c, columns), y_of(r, rows),
                 heights[r * columns + c] * size[2]};
  };
  const auto foot = [&](int r, int c) {
    return Point{x_of(c, columns), y_of(r, rows), -size[3]};
  };

  std::vector<Triangle> triangles;
  // surface: strips between two rows of the grid
  for (int r = 0; r + 1 < rows; ++r) {
    for (int c = 0; c + 1 < columns; ++c) {
      const Point a = top(r + 1, c), b = top(r, c);
      const Point e = top(r + 1, c + 1), f = top(r, c + 1);
      AddFlat(a, b, e, FaceNormal(a, b, e), triangles);
      AddFlat(b, f, e, FaceNormal(b, f, e), triangles);
    }
  }
  const int last_row = rows - 1;
  const int last_column = columns - 1;
  for (int r = 0; r + 1 < rows; ++r) {
    AddQuad({foot(r + 1, 0), foot(r, 0), top(r, 0), top(r + 1, 0)}, {-1, 0, 0},
            triangles);
    AddQuad({foot(r, last_column), foot(r + 1, last_column),
             top(r + 1, last_column), top(r, last_column)},
            {1, 0, 0}, triangles);
  }
  for (int c = 0; c + 1 < columns; ++c) {
    AddQuad({foot(0, c), foot(0, c + 1), top(0, c + 1), top(0, c)}, {0, -1, 0},
            triangles);
    AddQuad({foot(last_row, c + 1), foot(last_row, c), top(last_row, c),
             top(last_row, c + 1)},
            {0, 1, 0}, triangles);
  }
  // bottom: separate squares
  const int squares = model.vis.quality.numquads + 1;
  for (int r = 0; r + 1 < squares; ++r) {
    for (int c = 0; c + 1 < squares; ++c) {
      const float x0 = x_of(c, squares), x1 = x_of(c + 1, squares);
      const float y0 = y_of(r, squares), y1 = y_of(r + 1, squares);
      AddQuad({Point{x0, y0, -size[3]}, Point{x0, y1, -size[3]},
               Point{x1, y1, -size[3]}, Point{x1, y0, -size[3]}},
              {0, 0, -1}, triangles);
    }
  }
  return TriangleSet(std::move(triangles));
}

}  // namespace replicant::env::raycast
