#include "env/renderer/raycast/triangle_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

namespace replicant::env::raycast {
namespace {

using Point = Box::Point;

// Small boxes about random places, with the sums of three corners there.
struct Cloud {
  std::vector<Box> boxes;
  std::vector<Point> sums;
};

Cloud MakeCloud(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> place(-1, 1), side(0, 0.05f);
  Cloud cloud;
  for (size_t i = 0; i < size; ++i) {
    const Point at = {place(random), place(random), place(random)};
    Box box;
    box.Include(at);
    box.Include(Point{at[0] + side(random), at[1] + side(random), at[2]});
    cloud.boxes.push_back(box);
    cloud.sums.push_back({3 * at[0], 3 * at[1], 3 * at[2]});
  }
  return cloud;
}

bool Contains(const Box& outer, const Box& inner) {
  for (size_t axis = 0; axis < 3; ++axis) {
    if (inner.low[axis] < outer.low[axis]) return false;
    if (inner.high[axis] > outer.high[axis]) return false;
  }
  return true;
}

// Visits node `index` and what lies below it: everything must lie in `outer`.
// Counts the visits of each place, and returns the number of nodes.
size_t Walk(const TriangleTree& tree, size_t index, const Box& outer,
            const std::vector<Box>& boxes, std::vector<int>& visits) {
  size_t num_nodes = 1;
  const TriangleTree::Node& node = tree.nodes()[index];
  for (size_t i = 0; i < static_cast<size_t>(node.num_children); ++i) {
    Box box;
    for (size_t axis = 0; axis < 3; ++axis) {
      box.low[axis] = node.low[axis][i];
      box.high[axis] = node.high[axis][i];
    }
    EXPECT_TRUE(Contains(outer, box));
    const auto first = static_cast<size_t>(node.first[i]);
    if (!node.is_leaf(i)) {
      EXPECT_GT(first, index);
      num_nodes += Walk(tree, first, box, boxes, visits);
      continue;
    }
    EXPECT_LE(node.num_triangles[i], TriangleTree::kLeafSize);
    for (size_t k = first; k < first + node.num_triangles[i]; ++k) {
      EXPECT_TRUE(Contains(box, boxes[k]));
      ++visits[k];
    }
  }
  return num_nodes;
}

std::vector<Box> InOrder(const std::vector<Box>& boxes,
                         const std::vector<int32_t>& order) {
  std::vector<Box> sorted;
  sorted.reserve(order.size());
  for (const int32_t i : order) sorted.push_back(boxes[static_cast<size_t>(i)]);
  return sorted;
}

void ExpectWhole(const TriangleTree& tree, const std::vector<Box>& boxes) {
  std::vector<int> visits(boxes.size());
  EXPECT_EQ(Walk(tree, 0, tree.bounds(), boxes, visits), tree.nodes().size());
  EXPECT_EQ(visits, std::vector<int>(boxes.size(), 1));
}

TEST(TriangleTreeTest, EveryTriangleLiesInOneLeafAndInAllBoxesAboveIt) {
  for (const size_t size : {1, 4, 5, 9, 33, 1000}) {
    SCOPED_TRACE(size);
    const Cloud cloud = MakeCloud(size, 7);
    std::vector<int32_t> order;
    const TriangleTree tree(cloud.boxes, cloud.sums, order);
    std::vector<int32_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    std::vector<int32_t> all(size);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(sorted, all);
    ExpectWhole(tree, InOrder(cloud.boxes, order));
  }
}

TEST(TriangleTreeTest, EightChildrenMakeAFewNodesOfMany) {
  const Cloud cloud = MakeCloud(1000, 7);
  std::vector<int32_t> order;
  const TriangleTree tree(cloud.boxes, cloud.sums, order);
  // 1000 triangles fill 250 leaves at least; full nodes would be 36
  EXPECT_LT(tree.nodes().size(), 120u);
}

TEST(TriangleTreeTest, EqualPlacesAreDividedAllTheSame) {
  const std::vector<Box> boxes(100, Box{{0, 0, 0}, {1, 1, 0}});
  const std::vector<Point> sums(100, Point{1, 1, 0});
  std::vector<int32_t> order;
  ExpectWhole(TriangleTree(boxes, sums, order), boxes);
}

TEST(TriangleTreeTest, BoxesFollowTrianglesThatMove) {
  const Cloud before = MakeCloud(500, 7);
  const Cloud after = MakeCloud(500, 8);
  std::vector<int32_t> order;
  TriangleTree tree(before.boxes, before.sums, order);
  const std::vector<Box> moved = InOrder(after.boxes, order);
  tree.Refit(moved);
  ExpectWhole(tree, moved);
  Box all;
  for (const Box& box : moved) all.Include(box);
  EXPECT_EQ(tree.bounds().low, all.low);
  EXPECT_EQ(tree.bounds().high, all.high);
}

TEST(TriangleTreeTest, NoTrianglesMakeNoNode) {
  std::vector<int32_t> order;
  EXPECT_TRUE(TriangleTree({}, {}, order).nodes().empty());
}

}  // namespace
}  // namespace replicant::env::raycast
