#include "env/renderer/raycast/triangles.h"

#include <algorithm>
#include <cmath>

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

Box BoxOf(const Triangle& triangle) {
  Box box;
  for (const Point& corner : triangle.corner) box.Include(corner);
  return box;
}

Point SumOf(const Triangle& triangle) {
  const auto& [a, b, c] = triangle.corner;
  return {a[0] + b[0] + c[0], a[1] + b[1] + c[1], a[2] + b[2] + c[2]};
}

void AddFlat(const Point& a, const Point& b, const Point& c,
             const Point& normal, std::vector<Triangle>& triangles) {
  triangles.push_back(
      {.corner = {a, b, c}, .normal = {normal, normal, normal}});
}

// Mesa draws a quad as the triangles 0 1 3 and 1 2 3.
void AddQuad(const std::array<Point, 4>& corner, const Point& normal,
             std::vector<Triangle>& triangles) {
  AddFlat(corner[0], corner[1], corner[3], normal, triangles);
  AddFlat(corner[1], corner[2], corner[3], normal, triangles);
}

}  // namespace

Point FaceNormal(const Point& a, const Point& b, const Point& c) {
  const Point n = Cross(Sub(b, a), Sub(c, a));
  const float length = std::sqrt(Dot(n, n));
  if (length < 1e-10f) return {0, 0, 1};
  return {n[0] / length, n[1] / length, n[2] / length};
}

TriangleSet::TriangleSet(const std::vector<Triangle>& triangles) {
  std::vector<Box> boxes;
  std::vector<Point> sums;
  boxes.reserve(triangles.size());
  sums.reserve(triangles.size());
  for (const Triangle& triangle : triangles) {
    boxes.push_back(BoxOf(triangle));
    sums.push_back(SumOf(triangle));
  }
  tree_ = TriangleTree(boxes, sums, order_);
  corners_.resize(triangles.size() * kStride);
  normals_.resize(triangles.size() * kStride);
  texture_coordinates_.resize(triangles.size() * kTextureStride);
  for (size_t i = 0; i < order_.size(); ++i) {
    SetTriangle(i, triangles[static_cast<size_t>(order_[i])]);
  }
  SetHalfBox();
}

void TriangleSet::SetTriangle(size_t at, const Triangle& triangle) {
  for (size_t i = 0; i < kStride; ++i) {
    corners_[at * kStride + i] = triangle.corner[i / 3][i % 3];
    normals_[at * kStride + i] = triangle.normal[i / 3][i % 3];
  }
  for (size_t i = 0; i < kTextureStride; ++i) {
    texture_coordinates_[at * kTextureStride + i] =
        triangle.texture_coordinate[i / 2][i % 2];
  }
}

void TriangleSet::SetHalfBox() {
  if (order_.empty()) return;
  const Box& box = tree_.bounds();
  for (size_t axis = 0; axis < 3; ++axis) {
    half_box_[axis] =
        std::max(std::abs(box.low[axis]), std::abs(box.high[axis]));
  }
}

void TriangleSet::CountLayers() {
  // corners in their order, from the smallest on, and the triangle's number
  struct Turned {
    std::array<Point, 3> corner;
    size_t i;
  };
  std::vector<Turned> all(order_.size());
  for (size_t i = 0; i < all.size(); ++i) {
    Turned& turned = all[i];
    turned.i = i;
    for (size_t k = 0; k < kStride; ++k) {
      turned.corner[k / 3][k % 3] = corners_[i * kStride + k];
    }
    auto& corner = turned.corner;
    std::rotate(corner.begin(), std::min_element(corner.begin(), corner.end()),
                corner.end());
  }
  std::sort(all.begin(), all.end(), [](const Turned& a, const Turned& b) {
    return a.corner < b.corner;
  });
  layers_.clear();
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    while (end < all.size() && all[end].corner == all[begin].corner) ++end;
    if (end - begin == 1) continue;
    layers_.resize(all.size(), 1);
    for (size_t i = begin; i < end; ++i) {
      layers_[all[i].i] = static_cast<int32_t>(end - begin);
    }
  }
}

void TriangleSet::Move(const std::vector<Triangle>& triangles) {
  layers_.clear();
  std::vector<Box> boxes(order_.size());
  for (size_t i = 0; i < order_.size(); ++i) {
    const Triangle& triangle = triangles[static_cast<size_t>(order_[i])];
    SetTriangle(i, triangle);
    boxes[i] = BoxOf(triangle);
  }
  tree_.Refit(boxes);
  SetHalfBox();
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
      if (!has_texcoord) continue;
      const float* at =
          model.mesh_texcoord +
          2 * (model.mesh_texcoordadr[id] + model.mesh_facetexcoord[corner]);
      t.texture_coordinate[k] = {at[0], at[1]};
    }
    const Point flat = FaceNormal(t.corner[0], t.corner[1], t.corner[2]);
    for (Point& normal : t.normal) {
      if (!has_texcoord && Dot(normal, flat) < 0.8f) normal = flat;
    }
    triangles.push_back(t);
  }
  TriangleSet set(triangles);
  set.CountLayers();
  return set;
}

namespace {

// The faces of skin `id` with vertices and normals of their own.
std::vector<Triangle> SkinTriangles(const mjModel& model, int id,
                                    const float* vertices,
                                    const float* normals) {
  std::vector<Triangle> triangles(static_cast<size_t>(model.skin_facenum[id]));
  const int* face = model.skin_face + 3 * model.skin_faceadr[id];
  for (Triangle& t : triangles) {
    for (size_t k = 0; k < 3; ++k) {
      const int vertex = *face++;
      const float* at = vertices + 3 * vertex;
      t.corner[k] = {at[0], at[1], at[2]};
      if (normals != nullptr) {
        const float* normal = normals + 3 * vertex;
        t.normal[k] = {normal[0], normal[1], normal[2]};
      }
      if (model.skin_texcoordadr[id] < 0) continue;
      const float* st =
          model.skin_texcoord + 2 * (model.skin_texcoordadr[id] + vertex);
      t.texture_coordinate[k] = {st[0], st[1]};
    }
  }
  return triangles;
}

}  // namespace

TriangleSet MakeSkin(const mjModel& model, int id) {
  const std::vector<Triangle> triangles =
      SkinTriangles(model, id, model.skin_vert + 3 * model.skin_vertadr[id],
                    /*normals=*/nullptr);
  TriangleSet skin(triangles);
  skin.Move(triangles);  // as it will in each picture
  return skin;
}

void MoveSkin(const mjModel& model, const mjvScene& scene, int id,
              TriangleSet& skin) {
  const int at = 3 * scene.skinvertadr[id];
  skin.Move(
      SkinTriangles(model, id, scene.skinvert + at, scene.skinnormal + at));
}

TriangleSet MakeFlex(const mjvScene& scene, int id, bool has_texcoord) {
  std::vector<Triangle> triangles(static_cast<size_t>(scene.flexfaceused[id]));
  const auto first = static_cast<size_t>(scene.flexfaceadr[id]);
  for (size_t i = 0; i < triangles.size(); ++i) {
    for (size_t k = 0; k < 3; ++k) {
      const size_t corner = 3 * (first + i) + k;
      const float* at = scene.flexface + 3 * corner;
      const float* normal = scene.flexnormal + 3 * corner;
      triangles[i].corner[k] = {at[0], at[1], at[2]};
      triangles[i].normal[k] = {normal[0], normal[1], normal[2]};
      if (!has_texcoord) continue;
      const float* st = scene.flextexcoord + 2 * corner;
      triangles[i].texture_coordinate[k] = {st[0], st[1]};
    }
  }
  return TriangleSet(triangles);
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
  return TriangleSet(triangles);
}

}  // namespace replicant::env::raycast
