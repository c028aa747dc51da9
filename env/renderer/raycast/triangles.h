#pragma once

#include <mujoco/mujoco.h>

#include <array>
#include <cstdint>
#include <vector>

#include "env/renderer/raycast/triangle_tree.h"

namespace replicant::env::raycast {

// The triangles of a mesh or of a height field, in the geom's coordinates, with
// a tree of boxes for finding the first one that a ray hits (FindTriangles() in
// triangle_hits-inl.h). They stand in the order of the tree's leaves.
//
// Thread-safety: const methods may run concurrently.
class TriangleSet {
 public:
  using Point = Box::Point;
  struct Triangle {
    std::array<Point, 3> corner;  // counter-clockwise from outside
    std::array<Point, 3> normal;  // unit, at the corners
    std::array<std::array<float, 2>, 3> texture_coordinate{};
  };

  TriangleSet() = default;
  // Triangles in the order in which OpenGL draws them.
  explicit TriangleSet(const std::vector<Triangle>& triangles);

  // Replaces corners and normals of all triangles, which come in the order in
  // that the set was made of them; the division into boxes stays.
  void Move(const std::vector<Triangle>& triangles);

  const TriangleTree& tree() const { return tree_; }

  // Triangle `i`: coordinates 3 k + axis of corner (or normal) k.
  static constexpr int kStride = 9;
  const float* corners() const { return corners_.data(); }
  const float* normals() const { return normals_.data(); }
  // Coordinates 2 k + axis of corner k, in the texture.
  static constexpr int kTextureStride = 6;
  const float* texture_coordinates() const {
    return texture_coordinates_.data();
  }
  // The order in which OpenGL draws the triangles: numbers in the vector that
  // the set was made of.
  const std::vector<int32_t>& order() const { return order_; }
  // Triangles that lie on triangle `i`, corner by corner, itself included;
  // empty if each lies alone. MuJoCo adds the light of a lamp with shadow for
  // every one of them.
  const std::vector<int32_t>& layers() const { return layers_; }
  // Counts them, until triangles move.
  void CountLayers();
  // Half sides of a box about the origin that contains all triangles.
  const Point& half_box() const { return half_box_; }

 private:
  void SetTriangle(size_t at, const Triangle& triangle);
  void SetHalfBox();

  TriangleTree tree_;
  std::vector<int32_t> order_, layers_;
  std::vector<float> corners_, normals_, texture_coordinates_;
  Point half_box_{};
};

// Unit normal of a triangle with corners counter-clockwise.
TriangleSet::Point FaceNormal(const TriangleSet::Point& a,
                              const TriangleSet::Point& b,
                              const TriangleSet::Point& c);

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
