#include "env/renderer/raycast/triangles.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

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

struct Box {
  Point low = [] {
    constexpr float kFar = std::numeric_limits<float>::infinity();
    return Point{kFar, kFar, kFar};
  }();
  Point high = {-low[0], -low[1], -low[2]};

  void Include(const Point& point) {
    for (size_t axis = 0; axis < 3; ++axis) {
      low[axis] = std::min(low[axis], point[axis]);
      high[axis] = std::max(high[axis], point[axis]);
    }
  }
  void Include(const Triangle& triangle) {
    for (const Point& corner : triangle.corner) Include(corner);
  }
  void Include(const Box& box) {
    Include(box.low);
    Include(box.high);
  }
  float HalfArea() const {
    const Point side = Sub(high, low);
    return side[0] * side[1] + side[1] * side[2] + side[2] * side[0];
  }
};

size_t LongestSide(const Box& box) {
  const Point side = Sub(box.high, box.low);
  return static_cast<size_t>(std::max_element(side.begin(), side.end()) -
                             side.begin());
}

// A plane between triangles: those whose middle lies in bin `bin` and above of
// kNumBins between `low` and `high` lie on its far side.
constexpr int kNumBins = 16;
struct Split {
  bool is_found = false;
  size_t axis = 0;
  int bin = 0;
  float low = 0, per_side = 0;

  int BinOf(const Triangle& t) const {
    const float at = (Middle(t, axis) - low) * per_side;
    return std::clamp(static_cast<int>(at), 0, kNumBins - 1);
  }
};

// The split with the least cost by the surface area heuristic: a ray meets a
// box with a probability in proportion to its surface, and then tests its
// triangles. Source: Wald, On fast Construction of SAH-based Bounding Volume
// Hierarchies, 2007.
Split BestSplit(std::span<const Triangle> triangles) {
  Split best;
  float least = std::numeric_limits<float>::infinity();
  for (size_t axis = 0; axis < 3; ++axis) {
    Split split{.is_found = true, .axis = axis};
    float high = -std::numeric_limits<float>::infinity();
    split.low = -high;
    for (const Triangle& t : triangles) {
      split.low = std::min(split.low, Middle(t, axis));
      high = std::max(high, Middle(t, axis));
    }
    if (!(high > split.low)) continue;
    split.per_side = kNumBins / (high - split.low);

    std::array<Box, kNumBins> boxes;
    std::array<int, kNumBins> counts{};
    for (const Triangle& t : triangles) {
      const auto bin = static_cast<size_t>(split.BinOf(t));
      boxes[bin].Include(t);
      ++counts[bin];
    }
    // cost of the far side of each plane, then with the near side
    std::array<float, kNumBins> far_cost{};
    Box far, near;
    int num_far = 0, num_near = 0;
    for (size_t bin = kNumBins; bin-- > 1;) {
      far.Include(boxes[bin]);
      num_far += counts[bin];
      far_cost[bin] = num_far == 0
                          ? std::numeric_limits<float>::infinity()
                          : far.HalfArea() * static_cast<float>(num_far);
    }
    for (size_t bin = 1; bin < kNumBins; ++bin) {
      near.Include(boxes[bin - 1]);
      num_near += counts[bin - 1];
      if (num_near == 0) continue;
      const float cost =
          near.HalfArea() * static_cast<float>(num_near) + far_cost[bin];
      if (cost >= least) continue;
      least = cost;
      best = split;
      best.bin = static_cast<int>(bin);
    }
  }
  return best;
}

// Moves the triangles of the near side to the front; their number.
size_t Divide(std::span<Triangle> triangles, const Split& split) {
  const auto middle = std::stable_partition(
      triangles.begin(), triangles.end(),
      [&](const Triangle& t) { return split.BinOf(t) < split.bin; });
  return static_cast<size_t>(middle - triangles.begin());
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

TriangleSet::TriangleSet(std::vector<Triangle> triangles) {
  if (triangles.empty()) return;
  for (size_t i = 0; i < triangles.size(); ++i) {
    triangles[i].order = static_cast<int32_t>(i);
  }
  pairs_.emplace_back();
  Build(triangles, 0, 0, triangles.size(), 1);
  order_.resize(triangles.size());
  corners_.resize(triangles.size() * kStride);
  normals_.resize(triangles.size() * kStride);
  texture_coordinates_.resize(triangles.size() * kTextureStride);
  for (size_t i = 0; i < triangles.size(); ++i) SetTriangle(i, triangles[i]);
  SetHalfBox();
}

void TriangleSet::SetTriangle(size_t at, const Triangle& triangle) {
  order_[at] = triangle.order;
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
  const Node& root = NodeAt(0);
  for (size_t axis = 0; axis < 3; ++axis) {
    half_box_[axis] =
        std::max(std::abs(root.low[axis]), std::abs(root.high[axis]));
  }
}

void TriangleSet::Move(const std::vector<Triangle>& triangles) {
  for (size_t i = 0; i < order_.size(); ++i) {
    Triangle triangle = triangles[static_cast<size_t>(order_[i])];
    triangle.order = order_[i];
    SetTriangle(i, triangle);
  }
  // children stand behind their parents
  for (auto n = static_cast<int32_t>(2 * pairs_.size()); n-- > 0;) {
    if (n == 1) continue;  // beside the root
    Node& node = NodeAt(n);
    Box box;
    if (node.is_leaf()) {
      for (int32_t i = node.first; i < node.first + node.count; ++i) {
        box.Include(
            triangles[static_cast<size_t>(order_[static_cast<size_t>(i)])]);
      }
    } else {
      for (int32_t child = node.first; child < node.first + 2; ++child) {
        box.Include(NodeAt(child).low);
        box.Include(NodeAt(child).high);
      }
    }
    node.low = box.low;
    node.high = box.high;
  }
  if (!pairs_.empty()) SetHalfBox();
}

// Sorts triangles [begin, end) into node `index` and the nodes below it.
void TriangleSet::Build(std::vector<Triangle>& triangles, int32_t index,
                        size_t begin, size_t end, size_t depth) {
  Box box;
  for (size_t i = begin; i < end; ++i) box.Include(triangles[i]);
  Node& node = NodeAt(index);
  node = {box.low, static_cast<int32_t>(begin), box.high,
          static_cast<int32_t>(end - begin)};
  constexpr size_t kLeafSize = 4;
  if (end - begin <= kLeafSize) return;

  const std::span<Triangle> all(triangles.data() + begin, end - begin);
  // halves keep the tree shallow where the surface area heuristic does not
  const Split split = depth < kMaxDepth / 2 ? BestSplit(all) : Split{};
  size_t count = split.is_found ? Divide(all, split) : 0;
  const size_t axis = split.is_found ? split.axis : LongestSide(box);
  if (count == 0 || count == all.size()) {
    count = all.size() / 2;
    std::nth_element(all.begin(),
                     all.begin() + static_cast<std::ptrdiff_t>(count),
                     all.end(), [axis](const Triangle& a, const Triangle& b) {
                       return Middle(a, axis) < Middle(b, axis);
                     });
  }
  const auto first = static_cast<int32_t>(2 * pairs_.size());
  pairs_.emplace_back();
  NodeAt(index).first = first;
  NodeAt(index).count = -1 - static_cast<int32_t>(axis);
  Build(triangles, first, begin, begin + count, depth + 1);
  Build(triangles, first + 1, begin + count, end, depth + 1);
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
  return TriangleSet(std::move(triangles));
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
  return TriangleSet(SkinTriangles(model, id,
                                   model.skin_vert + 3 * model.skin_vertadr[id],
                                   /*normals=*/nullptr));
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
