#include "env/renderer/raycast/triangle_tree.h"

#include <algorithm>
#include <utility>

namespace replicant::env::raycast {
namespace {

using Point = Box::Point;

// A triangle that is to be sorted.
struct Item {
  Box box;
  Point middle;  // sum of the corners
  int32_t number;
};

// A node of the tree of pairs that becomes wide at the end. A leaf holds
// triangles [first, first + count); an inner node has children `first` and
// `first` + 1, and a count of 0.
struct Pair {
  Box box;
  int32_t first = 0, count = 0;
};

size_t LongestSide(const Box& box) {
  size_t longest = 0;
  for (size_t axis = 1; axis < 3; ++axis) {
    if (box.high[axis] - box.low[axis] > box.high[longest] - box.low[longest]) {
      longest = axis;
    }
  }
  return longest;
}

// A plane between triangles: those whose middle lies in bin `bin` and above of
// kNumBins between `low` and `high` lie on its far side.
constexpr int kNumBins = 16;
struct Split {
  bool is_found = false;
  size_t axis = 0;
  int bin = 0;
  float low = 0, per_side = 0;

  int BinOf(const Item& item) const {
    const float at = (item.middle[axis] - low) * per_side;
    return std::clamp(static_cast<int>(at), 0, kNumBins - 1);
  }
};

// The split with the least cost by the surface area heuristic: a ray meets a
// box with a probability in proportion to its surface, and then tests its
// triangles. Source: Wald, On fast Construction of SAH-based Bounding Volume
// Hierarchies, 2007.
Split BestSplit(std::span<const Item> items) {
  Split best;
  float least = Box::kFar;
  Box middles;
  for (const Item& item : items) middles.Include(item.middle);
  for (size_t axis = 0; axis < 3; ++axis) {
    if (!(middles.high[axis] > middles.low[axis])) continue;
    Split split{.is_found = true, .axis = axis, .low = middles.low[axis]};
    split.per_side = kNumBins / (middles.high[axis] - split.low);

    std::array<Box, kNumBins> boxes;
    std::array<int, kNumBins> counts{};
    for (const Item& item : items) {
      const auto bin = static_cast<size_t>(split.BinOf(item));
      boxes[bin].Include(item.box);
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
                          ? Box::kFar
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

// Builds the tree of pairs.
class PairBuilder {
 public:
  explicit PairBuilder(std::span<Item> items) : items_(items) {
    pairs_.reserve(items.size());
    pairs_.emplace_back();
    Build(0, 0, items.size(), 1);
  }
  std::vector<Pair> Take() { return std::move(pairs_); }

 private:
  // Moves the items of the near half of [begin, end) to the front; their
  // number.
  size_t Divide(const Box& box, size_t begin, size_t end, size_t depth) {
    const std::span<Item> all = items_.subspan(begin, end - begin);
    // halves keep the tree shallow where the surface area heuristic does not
    const Split split =
        depth < TriangleTree::kMaxDepth / 2 ? BestSplit(all) : Split{};
    if (split.is_found) {
      const auto middle = std::stable_partition(
          all.begin(), all.end(),
          [&](const Item& item) { return split.BinOf(item) < split.bin; });
      const auto count = static_cast<size_t>(middle - all.begin());
      if (count > 0 && count < all.size()) return count;
    }
    const size_t axis = split.is_found ? split.axis : LongestSide(box);
    const size_t half = all.size() / 2;
    std::nth_element(all.begin(),
                     all.begin() + static_cast<std::ptrdiff_t>(half), all.end(),
                     [axis](const Item& a, const Item& b) {
                       return a.middle[axis] < b.middle[axis];
                     });
    return half;
  }

  void Build(size_t index, size_t begin, size_t end, size_t depth) {
    Box box;
    for (size_t i = begin; i < end; ++i) box.Include(items_[i].box);
    if (end - begin <= TriangleTree::kLeafSize) {
      pairs_[index] = {box, static_cast<int32_t>(begin),
                       static_cast<int32_t>(end - begin)};
      return;
    }
    const size_t middle = begin + Divide(box, begin, end, depth);
    const size_t first = pairs_.size();
    pairs_[index] = {box, static_cast<int32_t>(first), 0};
    pairs_.resize(first + 2);
    Build(first, begin, middle, depth + 1);
    Build(first + 1, middle, end, depth + 1);
  }

  std::span<Item> items_;
  std::vector<Pair> pairs_;
};

// Adds the node whose children lie below pair `top`: the two of the pair, of
// which the largest is replaced by its own two while there is room.
void Widen(const std::vector<Pair>& pairs, size_t top,
           std::vector<TriangleTree::Node>& nodes) {
  std::array<size_t, TriangleTree::kWidth> chosen{top};
  size_t count = 1;
  while (count < TriangleTree::kWidth) {
    size_t* largest = nullptr;
    for (size_t i = 0; i < count; ++i) {
      const Pair& pair = pairs[chosen[i]];
      if (pair.count == 0 &&
          (largest == nullptr ||
           pair.box.HalfArea() > pairs[*largest].box.HalfArea())) {
        largest = &chosen[i];
      }
    }
    if (largest == nullptr) break;
    const auto first = static_cast<size_t>(pairs[*largest].first);
    *largest = first;
    chosen[count++] = first + 1;
  }

  const size_t index = nodes.size();
  nodes.emplace_back();
  nodes[index].num_children = static_cast<int32_t>(count);
  for (size_t i = 0; i < count; ++i) {
    const Pair& pair = pairs[chosen[i]];
    TriangleTree::Node& node = nodes[index];
    for (size_t axis = 0; axis < 3; ++axis) {
      node.low[axis][i] = pair.box.low[axis];
      node.high[axis][i] = pair.box.high[axis];
    }
    if (pair.count > 0) {
      node.first[i] = pair.first;
      node.num_triangles[i] = static_cast<uint8_t>(pair.count);
      continue;
    }
    node.first[i] = static_cast<int32_t>(nodes.size());
    Widen(pairs, chosen[i], nodes);
  }
}

Box BoundsOf(const TriangleTree::Node& node) {
  Box box;
  for (size_t i = 0; i < static_cast<size_t>(node.num_children); ++i) {
    for (size_t axis = 0; axis < 3; ++axis) {
      box.low[axis] = std::min(box.low[axis], node.low[axis][i]);
      box.high[axis] = std::max(box.high[axis], node.high[axis][i]);
    }
  }
  return box;
}

}  // namespace

TriangleTree::TriangleTree(std::span<const Box> boxes,
                           std::span<const Box::Point> corner_sums,
                           std::vector<int32_t>& order) {
  order.resize(boxes.size());
  if (boxes.empty()) return;
  std::vector<Item> items(boxes.size());
  for (size_t i = 0; i < items.size(); ++i) {
    items[i] = {boxes[i], corner_sums[i], static_cast<int32_t>(i)};
  }
  const std::vector<Pair> pairs = PairBuilder(items).Take();
  std::vector<Box> sorted(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    order[i] = items[i].number;
    sorted[i] = items[i].box;
  }
  Widen(pairs, 0, nodes_);
  nodes_.shrink_to_fit();
  SetTriangleBoxes(sorted);
  bounds_ = BoundsOf(nodes_.front());
}

void TriangleTree::SetTriangleBoxes(std::span<const Box> boxes) {
  triangle_boxes_.resize(kBoxSize * boxes.size() + kWidth);
  for (const Node& node : nodes_) {
    for (size_t child = 0; child < static_cast<size_t>(node.num_children);
         ++child) {
      const size_t count = node.num_triangles[child];
      const auto first = static_cast<size_t>(node.first[child]);
      float* to = triangle_boxes_.data() + kBoxSize * first;
      for (size_t i = 0; i < count; ++i) {
        for (size_t axis = 0; axis < 3; ++axis) {
          to[axis * count + i] = boxes[first + i].low[axis];
          to[(axis + 3) * count + i] = boxes[first + i].high[axis];
        }
      }
    }
  }
}

void TriangleTree::Refit(std::span<const Box> boxes) {
  triangle_boxes_.clear();
  for (size_t n = nodes_.size(); n-- > 0;) {
    Node& node = nodes_[n];
    for (size_t i = 0; i < static_cast<size_t>(node.num_children); ++i) {
      const auto first = static_cast<size_t>(node.first[i]);
      Box box;
      if (node.is_leaf(i)) {
        for (const Box& triangle :
             boxes.subspan(first, node.num_triangles[i])) {
          box.Include(triangle);
        }
      } else {
        box = BoundsOf(nodes_[first]);
      }
      for (size_t axis = 0; axis < 3; ++axis) {
        node.low[axis][i] = box.low[axis];
        node.high[axis][i] = box.high[axis];
      }
    }
  }
  if (!nodes_.empty()) bounds_ = BoundsOf(nodes_.front());
}

}  // namespace replicant::env::raycast
