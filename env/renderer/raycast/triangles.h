#pragma once

#include <mujoco/mujoco.h>

#include <array>
#include <cstdint>
#include <vector>

namespace replicant::env::raycast {

// The triangles of a mesh or of a height field, in the geom's coordinates, with
// a bounding volume hierarchy for finding the first one that a ray hits
// (FindTriangles() in intersect-inl.h). The hierarchy is split at the median of
// the longest side down to four triangles.
//
// Thread-safety: const methods may run concurrently.
class TriangleSet {
 public:
  using Point = std::array<float, 3>;
  struct Triangle {
    std::array<Point, 3> corner;  // counter-clockwise from outside
    std::array<Point, 3> normal;  // unit, at the corners
  };

  TriangleSet() = default;
  explicit TriangleSet(std::vector<Triangle> triangles);

  // A box of the tree.
  struct Node {
    Point low, high;
    // leaf: triangles [first, first + count); inner (count 0): its children are
    // the next node and node `first`, which lies further along `axis`
    int32_t first, count, axis;
  };
  // From the root on; empty without triangles. At most 32 nodes deep.
  const std::vector<Node>& nodes() const { return nodes_; }

  // Coordinate `axis` of corner (or normal) k of all triangles.
  const float* corner(size_t k, size_t axis) const {
    return corners_[3 * k + axis].data();
  }
  const float* normal(size_t k, size_t axis) const {
    return normals_[3 * k + axis].data();
  }
  // Half sides of a box about the origin that contains all triangles.
  const Point& half_box() const { return half_box_; }

 private:
  int32_t Build(std::vector<Triangle>& triangles, size_t begin, size_t end);

  std::vector<Node> nodes_;
  std::array<std::vector<float>, 9> corners_, normals_;
  Point half_box_{};
};

// Mesh `id` with the normals that MuJoCo draws: a corner's own, or the
// triangle's where the two differ by more than 37 degrees.
TriangleSet MakeMesh(const mjModel& model, int id);

// Height field `id`: its surface, four sides and the bottom, as drawn by
// MuJoCo; one normal per triangle.
TriangleSet MakeHeightField(const mjModel& model, int id);

}  // namespace replicant::env::raycast
