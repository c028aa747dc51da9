#pragma once

#include <mujoco/mujoco.h>

#include <array>
#include <cstdint>
#include <vector>

namespace replicant::env::raycast {

// The triangles of a mesh or of a height field, in the geom's coordinates, with
// a bounding volume hierarchy for finding the first one that a ray hits
// (FindTriangles() in intersect-inl.h).
//
// Thread-safety: const methods may run concurrently.
class TriangleSet {
 public:
  using Point = std::array<float, 3>;
  struct Triangle {
    std::array<Point, 3> corner;  // counter-clockwise from outside
    std::array<Point, 3> normal;  // unit, at the corners
    std::array<std::array<float, 2>, 3> texture_coordinate{};
    int32_t order = 0;  // in which OpenGL draws it
  };

  TriangleSet() = default;
  explicit TriangleSet(std::vector<Triangle> triangles);

  // A box of the tree. The two children of a node lie side by side in one line
  // of the cache.
  struct Node {
    Point low;
    // leaf: triangles [first, first + count); inner node: its children are
    // nodes `first` and `first + 1`, and the latter lies further along `axis()`
    int32_t first;
    Point high;
    int32_t count;  // -1 - axis for an inner node

    bool is_leaf() const { return count >= 0; }
    size_t axis() const { return static_cast<size_t>(-1 - count); }
  };
  // Replaces corners and normals of all triangles, which come in the order in
  // that the set was made of them; the division into boxes stays.
  void Move(const std::vector<Triangle>& triangles);

  // The root; null without triangles. At most kMaxDepth nodes deep.
  static constexpr size_t kMaxDepth = 64;
  const Node* nodes() const {
    return pairs_.empty() ? nullptr : pairs_[0].node.data();
  }

  // Triangle `i`: coordinates 3 k + axis of corner (or normal) k.
  static constexpr int kStride = 9;
  const float* corners() const { return corners_.data(); }
  const float* normals() const { return normals_.data(); }
  // Coordinates 2 k + axis of corner k, in the texture.
  static constexpr int kTextureStride = 6;
  const float* texture_coordinates() const {
    return texture_coordinates_.data();
  }
  // The order in which OpenGL draws the triangles.
  const std::vector<int32_t>& order() const { return order_; }
  // Half sides of a box about the origin that contains all triangles.
  const Point& half_box() const { return half_box_; }

 private:
  struct alignas(64) Pair {
    std::array<Node, 2> node;
  };
  Node& NodeAt(int32_t index) {
    return pairs_[static_cast<size_t>(index / 2)]
        .node[static_cast<size_t>(index % 2)];
  }
  void Build(std::vector<Triangle>& triangles, int32_t index, size_t begin,
             size_t end, size_t depth);
  void SetTriangle(size_t at, const Triangle& triangle);
  void SetHalfBox();

  std::vector<Pair> pairs_;  // the root alone in the first
  std::vector<int32_t> order_;
  std::vector<float> corners_, normals_, texture_coordinates_;
  Point half_box_{};
};

// Mesh `id` with the normals that MuJoCo draws: a corner's own, or the
// triangle's where the two differ by more than 37 degrees.
TriangleSet MakeMesh(const mjModel& model, int id);

// Skin `id` in the pose of the model.
TriangleSet MakeSkin(const mjModel& model, int id);
// Moves it to the pose of `scene`.
void MoveSkin(const mjModel& model, const mjvScene& scene, int id,
              TriangleSet& skin);

// The faces of flex `id`.
TriangleSet MakeFlex(const mjvScene& scene, int id, bool has_texcoord);

// Height field `id`: its surface, four sides and the bottom, as drawn by
// MuJoCo; one normal per triangle.
TriangleSet MakeHeightField(const mjModel& model, int id);

}  // namespace replicant::env::raycast
