#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace replicant::env::raycast {

// An axis-aligned box; empty at first.
struct Box {
  using Point = std::array<float, 3>;
  static constexpr float kFar = std::numeric_limits<float>::infinity();

  Point low{kFar, kFar, kFar};
  Point high{-kFar, -kFar, -kFar};

  void Include(const Point& point) { Include(Box{point, point}); }
  void Include(const Box& box) {
    for (size_t axis = 0; axis < 3; ++axis) {
      low[axis] = std::min(low[axis], box.low[axis]);
      high[axis] = std::max(high[axis], box.high[axis]);
    }
  }
  // Half of the surface.
  float HalfArea() const {
    const float x = high[0] - low[0];
    const float y = high[1] - low[1];
    const float z = high[2] - low[2];
    return x * y + y * z + z * x;
  }
};

// A bounding volume hierarchy whose nodes have up to eight children, so that
// one vector tests all of them.
//
// Thread-safety: const methods may run concurrently.
class TriangleTree {
 public:
  static constexpr size_t kWidth = 8;
  // Triangles of a leaf, at most.
  static constexpr size_t kLeafSize = 8;
  // Nodes below each other, at most.
  static constexpr size_t kMaxDepth = 64;

  // The boxes of the children, side by side: four lines of the cache.
  struct alignas(64) Node {
    using Coordinates = std::array<float, kWidth>;
    std::array<Coordinates, 3> low{}, high{};  // by axis
    // of a leaf the first triangle, else the child's number; children stand
    // behind their parents
    std::array<int32_t, kWidth> first{};
    std::array<uint8_t, kWidth> num_triangles{};  // 0: no leaf
    int32_t num_children = 0;

    bool is_leaf(size_t child) const { return num_triangles[child] > 0; }
  };

  TriangleTree() = default;
  // Sorts triangles, of which the boxes and the sums of the corners are given,
  // into leaves of up to kLeafSize that lie side by side: `order[i]` becomes
  // the number of the triangle in place i. O(n log n).
  TriangleTree(std::span<const Box> boxes,
               std::span<const Box::Point> corner_sums,
               std::vector<int32_t>& order);

  // Fits the boxes to triangles that moved; `boxes` in the order of the leaves.
  void Refit(std::span<const Box> boxes);

  // The root comes first; empty without triangles.
  const std::vector<Node>& nodes() const { return nodes_; }
  // Coordinates of the boxes of a leaf's triangles, side by side: low by axis,
  // then high. A vector may be read from the last one. Null after Refit():
  // to move them with every picture takes longer than they save.
  static constexpr size_t kBoxSize = 6;
  const float* boxes_of_leaf(size_t first_triangle) const {
    return triangle_boxes_.empty()
               ? nullptr
               : triangle_boxes_.data() + kBoxSize * first_triangle;
  }
  // The box around everything.
  const Box& bounds() const { return bounds_; }

 private:
  // `boxes` in the order of the leaves.
  void SetTriangleBoxes(std::span<const Box> boxes);

  std::vector<Node> nodes_;
  std::vector<float> triangle_boxes_;
  Box bounds_;
};

}  // namespace replicant::env::raycast
