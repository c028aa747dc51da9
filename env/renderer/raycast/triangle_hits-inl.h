// Triangles that rays hit. Included once per instruction set.
#include <hwy/cache_control.h>

#include <array>
#include <bit>
#include <cmath>

#include "env/renderer/raycast/frame.h"
#include "env/renderer/raycast/vector-inl.h"

#if defined(REPLICANT_RAYCAST_TRIANGLE_HITS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef REPLICANT_RAYCAST_TRIANGLE_HITS_INL_H_
#undef REPLICANT_RAYCAST_TRIANGLE_HITS_INL_H_
#else
#define REPLICANT_RAYCAST_TRIANGLE_HITS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// 1 / v, large for v = 0.
HWY_INLINE Float SafeInverse(Float v) {
  const Float tiny = Set(1e-20f);
  return Set(1.0f) / If(hn::Abs(v) < tiny, tiny, v);
}

// Triangles that rays hit: parameter and number, kMiss and -1 without a hit.
struct TriangleHits {
  Float t;
  Int index;
};

// Whether any ray o + t d of `lanes` hits triangle `i`, its front alone unless
// `kBoth`; sets `*is_hit` and there `*t`.
// Source: Moeller and Trumbore, Fast, Minimum Storage Ray/Triangle
// Intersection, Journal of Graphics Tools 2(1), 1997.
template <bool kBoth>
HWY_INLINE bool MeetTriangle(const TriangleSet& set, size_t i, Vec3 o, Vec3 d,
                             Mask lanes, Mask* is_hit, Float* t) {
  const float* corners = set.corners() + i * TriangleSet::kStride;
  const auto load = [&](size_t k) HWY_ATTR {
    const float* at = corners + 3 * k;
    return Vec3{Set(at[0]), Set(at[1]), Set(at[2])};
  };
  const Vec3 corner = load(0);
  const Vec3 edge1 = load(1) - corner;
  const Vec3 edge2 = load(2) - corner;
  const Vec3 p = Cross(d, edge2);
  Float determinant = Dot(edge1, p);
  const Vec3 v = o - corner;
  Float a = Dot(v, p);
  const Vec3 q = Cross(v, edge1);
  Float b = Dot(d, q);
  Float depth = Dot(edge2, q);
  if constexpr (kBoth) {
    // the sign of the determinant tells the side
    const Float sign = hn::CopySign(Set(1.0f), determinant);
    determinant = determinant * sign;
    a = a * sign;
    b = b * sign;
    depth = depth * sign;
  }
  // not edge on, and not from behind
  const Mask is_front = determinant > Set(1e-30f);
  const Mask is_inside =
      hn::And(hn::And(a >= Zero(), b >= Zero()), a + b <= determinant);
  *is_hit = hn::And(lanes, hn::And(is_front, is_inside));
  // most triangles are smaller than a pixel and missed by all rays
  if (hn::AllFalse(kFloat, *is_hit)) return false;
  *t = depth / If(is_front, determinant, Set(1.0f));
  return true;
}

// The space that all rays of a vector keep to. Along the axis that they follow
// most, beginning at `start`, coordinates across lie between planes
//   x_across - slope x_along = limit.
// If they diverge by a right angle or so it is all space.
struct Beam {
  // a side of the beam
  struct Plane {
    size_t across, along;  // coordinates of a box where it reaches farthest
    float slope, limit;
  };
  // Coordinates of a node's boxes by number: low of each axis, then high.
  static constexpr size_t kHigh = 3;

  std::array<Plane, 2> upper{{{0, 0, 0, kMiss}, {0, 0, 0, kMiss}}};
  std::array<Plane, 2> lower{{{0, 0, 0, -kMiss}, {0, 0, 0, -kMiss}}};
  size_t near = 0, far = 0;  // coordinates of a box along the axis
  float sign = 0;            // of the direction along it
  float start = 0, end = -kMiss;
  float inverse = 0;  // parameter per length, at least
};

// Of the lanes in `wanted`, of which there is one at least. Boxes may be as
// large as `half_box`.
HWY_INLINE Beam MakeBeam(Vec3 o, Vec3 d, Mask wanted,
                         const TriangleSet::Point& half_box) {
  std::array<Float, 3> from = {o.x, o.y, o.z};
  std::array<Float, 3> to = {d.x, d.y, d.z};
  if (!hn::AllTrue(kFloat, wanted)) {
    const auto first = static_cast<size_t>(hn::FindFirstTrue(kFloat, wanted));
    for (size_t axis = 0; axis < 3; ++axis) {
      from[axis] =
          If(wanted, from[axis], Set(hn::ExtractLane(from[axis], first)));
      to[axis] = If(wanted, to[axis], Set(hn::ExtractLane(to[axis], first)));
    }
  }
  const auto highest = [](Float v) HWY_ATTR {
    return hn::GetLane(hn::MaxOfLanes(kFloat, v));
  };
  const auto lowest = [](Float v) HWY_ATTR {
    return hn::GetLane(hn::MinOfLanes(kFloat, v));
  };
  size_t along = 0;
  for (size_t axis = 1; axis < 3; ++axis) {
    if (std::abs(hn::GetLane(to[axis])) > std::abs(hn::GetLane(to[along]))) {
      along = axis;
    }
  }
  Beam beam;
  beam.sign = hn::GetLane(to[along]) < 0 ? -1.0f : 1.0f;
  const Float speed = to[along] * Set(beam.sign);
  const float fastest = highest(speed);
  if (!(lowest(speed) > 0.1f * fastest)) return beam;

  const Float begin = from[along] * Set(beam.sign);
  const float begin_low = lowest(begin);
  const float begin_high = highest(begin);
  // far more than rounding
  constexpr float kSlack = 4e-6f;
  const float reach =
      half_box[along] + std::max(std::abs(begin_low), std::abs(begin_high));
  beam.near = along + (beam.sign < 0 ? Beam::kHigh : 0);
  beam.far = along + (beam.sign < 0 ? 0 : Beam::kHigh);
  beam.start = begin_high + kSlack * reach;
  beam.end = begin_low - kSlack * reach;
  beam.inverse = 1.0f / fastest;
  const Float inverse = Set(1.0f) / speed;
  for (size_t side = 0; side < 2; ++side) {
    const size_t across = (along + 1 + side) % 3;
    const Float per_length = to[across] * inverse;
    const Float steep = Set(beam.sign * highest(per_length));
    const Float flat = Set(beam.sign * lowest(per_length));
    const float upper = hn::GetLane(steep);
    const float lower = hn::GetLane(flat);
    const float slope = std::max(std::abs(upper), std::abs(lower));
    const float slack =
        kSlack *
        (half_box[across] + highest(hn::Abs(from[across])) + slope * reach);
    const float at_upper =
        highest(NegFma(steep, from[along], from[across])) + slack;
    const float at_lower =
        lowest(NegFma(flat, from[along], from[across])) - slack;
    beam.upper[side] = {across, upper < 0 ? along : along + Beam::kHigh, upper,
                        at_upper};
    beam.lower[side] = {across + Beam::kHigh,
                        lower < 0 ? along + Beam::kHigh : along, lower,
                        at_lower};
  }
  return beam;
}

// Children of a node, or some of them, in one vector.
using ChildTag = hn::CappedTag<float, TriangleTree::kWidth>;
inline constexpr ChildTag kChildren;

// The boxes that reach into the beam, a bit for each, and for all of them the
// parameters `enter` before which no ray is in the box. Coordinate c of box i
// is boxes[stride c + i]; a vector may be read from there.
HWY_INLINE uint32_t ReachedBoxes(const float* boxes, size_t stride,
                                 size_t count, const Beam& beam, float* enter) {
  uint32_t reached = 0;
  const size_t lanes = hn::Lanes(kChildren);
  for (size_t i = 0; i < count; i += lanes) {
    const auto coordinate = [&](size_t number) HWY_ATTR {
      return hn::LoadU(kChildren, boxes + number * stride + i);
    };
    const auto set = [](float v) HWY_ATTR { return hn::Set(kChildren, v); };
    const auto sign = set(beam.sign);
    hn::Store(hn::Max((coordinate(beam.near) * sign - set(beam.start)) *
                          set(beam.inverse),
                      hn::Zero(kChildren)),
              kChildren, enter + i);
    auto is_in = coordinate(beam.far) * sign >= set(beam.end);
    for (size_t side = 0; side < 2; ++side) {
      const Beam::Plane& upper = beam.upper[side];
      is_in = hn::And(
          is_in, hn::NegMulAdd(set(upper.slope), coordinate(upper.along),
                               coordinate(upper.across)) <= set(upper.limit));
      const Beam::Plane& lower = beam.lower[side];
      is_in = hn::And(
          is_in, hn::NegMulAdd(set(lower.slope), coordinate(lower.along),
                               coordinate(lower.across)) >= set(lower.limit));
    }
    std::array<uint8_t, 8> bits{};
    hn::StoreMaskBits(kChildren, is_in, bits.data());
    reached |= uint32_t{bits[0]} << i;
  }
  return reached & ((1u << count) - 1);
}

HWY_INLINE uint32_t ReachedChildren(const TriangleTree::Node& node,
                                    const Beam& beam, float* enter) {
  return ReachedBoxes(node.low[0].data(), TriangleTree::kWidth,
                      static_cast<size_t>(node.num_children), beam, enter);
}

// Tests of rays against single boxes.
struct BoxTest {
  Vec3 o, inverse;
  Float t_min;

  HWY_INLINE BoxTest(Vec3 origin, Vec3 d, Float first)
      : o(origin),
        inverse{SafeInverse(d.x), SafeInverse(d.y), SafeInverse(d.z)},
        t_min(first) {}

  // Lanes that enter the child's box, at `*enter`, no later than at `t_max`.
  HWY_INLINE Mask Meets(const TriangleTree::Node& node, size_t child,
                        Float t_max, Float* enter) const {
    const auto corner =
        [child](const std::array<TriangleTree::Node::Coordinates, 3>& by_axis)
            HWY_ATTR {
              return Vec3{Set(by_axis[0][child]), Set(by_axis[1][child]),
                          Set(by_axis[2][child])};
            };
    return Meets(corner(node.low), corner(node.high), t_max, enter);
  }
  HWY_INLINE Mask Meets(Vec3 box_low, Vec3 box_high, Float t_max,
                        Float* enter) const {
    const Vec3 low = (box_low - o) * inverse;
    const Vec3 high = (box_high - o) * inverse;
    *enter = hn::Max(
        hn::Max(hn::Max(t_min, hn::Min(low.x, high.x)), hn::Min(low.y, high.y)),
        hn::Min(low.z, high.z));
    const Float leave =
        hn::Min(hn::Min(hn::Max(low.x, high.x), hn::Max(low.y, high.y)),
                hn::Max(low.z, high.z));
    // tolerance for rounding: no edge of a triangle may be lost
    return hn::And(*enter <= leave * Set(1.00001f), *enter <= t_max);
  }
};

// Triangles of a leaf: `first` and those after it, a bit for each.
struct Leaf {
  int32_t first;
  uint32_t triangles;

  // Calls visit(triangle).
  template <typename Visit>
  HWY_INLINE void ForEach(const Visit& visit) const {
    for (uint32_t left = triangles; left != 0; left &= left - 1) {
      visit(first + std::countr_zero(left));
    }
  }
};

// Calls visit(lanes, enter, leaf) for the leaves whose boxes rays o + t d enter
// at `enter`, no later than at `t_max`, which may fall meanwhile; mostly the
// nearer ones first, with those of their triangles that rays may meet. Lanes
// with t_max < t_min are inactive.
//
// The rays go down the tree as one beam, since neighbours mostly take the same
// way; nodes and triangles are asked for when they come into sight, as most
// of the time of a large mesh is spent waiting for memory.
template <typename Visit>
HWY_INLINE void VisitLeaves(const TriangleSet& set, Vec3 o, Vec3 d, Float t_min,
                            const Float& t_max, const Visit& visit) {
  const std::vector<TriangleTree::Node>& nodes = set.tree().nodes();
  if (nodes.empty()) return;
  const BoxTest test(o, d, t_min);
  const Box& bounds = set.tree().bounds();
  Float begin;
  const Mask wanted =
      test.Meets(Set(bounds.low), Set(bounds.high), t_max, &begin);
  if (hn::AllFalse(kFloat, wanted)) return;
  const Beam beam = MakeBeam(o, d, wanted, set.half_box());
  // a child that waits: number of its node, place there
  struct Waiting {
    float enter;
    int32_t node, child;
  };
  std::array<Waiting, (TriangleTree::kWidth - 1) * TriangleTree::kMaxDepth + 1>
      stack;
  size_t depth = 0;
  const auto last_t = [&t_max]() HWY_ATTR {
    return hn::GetLane(hn::MaxOfLanes(kFloat, t_max));
  };
  float limit = last_t();
  const auto open = [&](int32_t number) HWY_ATTR {
    const TriangleTree::Node& node = nodes[static_cast<size_t>(number)];
    alignas(64) std::array<float, TriangleTree::kWidth> enter;
    uint32_t reached = ReachedChildren(node, beam, enter.data());
    const size_t bottom = depth;
    for (; reached != 0; reached &= reached - 1) {
      const auto child = static_cast<size_t>(std::countr_zero(reached));
      if (enter[child] > limit) continue;
      // a beam reaches boxes that lie between its rays
      Float first_met;
      if (hn::AllFalse(kFloat, test.Meets(node, child, t_max, &first_met))) {
        continue;
      }
      const auto first = static_cast<size_t>(node.first[child]);
      if (node.is_leaf(child)) {
        const float* corners = set.corners() + first * TriangleSet::kStride;
        const size_t size = node.num_triangles[child] * TriangleSet::kStride;
        for (size_t k = 0; k < size; k += 16) hwy::Prefetch(corners + k);
        hwy::Prefetch(corners + size - 1);
      } else {
        const float* boxes = nodes[first].low[0].data();
        for (size_t line = 0; line < 4; ++line) {
          hwy::Prefetch(boxes + 16 * line);
        }
      }
      // the nearest comes to the top
      size_t at = depth++;
      for (; at > bottom && stack[at - 1].enter < enter[child]; --at) {
        stack[at] = stack[at - 1];
      }
      stack[at] = {enter[child], number, static_cast<int32_t>(child)};
    }
  };
  open(0);
  while (depth > 0) {
    const Waiting next = stack[--depth];
    if (next.enter > limit) continue;
    const TriangleTree::Node& node = nodes[static_cast<size_t>(next.node)];
    const auto child = static_cast<size_t>(next.child);
    const int32_t first = node.first[child];
    if (!node.is_leaf(child)) {
      open(first);
      continue;
    }
    Float enter;
    const Mask meets = test.Meets(node, child, t_max, &enter);
    if (hn::AllFalse(kFloat, meets)) continue;
    const size_t count = node.num_triangles[child];
    Leaf leaf{first, (1u << count) - 1};
    const float* boxes = set.tree().boxes_of_leaf(static_cast<size_t>(first));
    if (boxes != nullptr) {
      alignas(64) std::array<float, TriangleTree::kWidth> unused;
      leaf.triangles = ReachedBoxes(boxes, count, count, beam, unused.data());
    }
    visit(meets, enter, leaf);
    limit = last_t();
  }
}

// Calls visit(lanes, triangle, t) for all triangles whose front the rays hit
// about between t_min and t_max.
template <typename Visit>
HWY_ATTR void VisitTriangles(const TriangleSet& set, Vec3 o, Vec3 d,
                             Float t_min, Float t_max, const Visit& visit) {
  const auto visit_leaf = [&](Mask meets, Float /*enter*/, Leaf leaf) HWY_ATTR {
    leaf.ForEach([&](int32_t i) HWY_ATTR {
      Mask is_hit;
      Float t;
      if (!MeetTriangle<false>(set, static_cast<size_t>(i), o, d, meets,
                               &is_hit, &t)) {
        return;
      }
      is_hit = hn::And(is_hit, t > Zero());
      if (!hn::AllFalse(kFloat, is_hit)) visit(is_hit, i, t);
    });
  };
  VisitLeaves(set, o, d, t_min, t_max, visit_leaf);
}

// The first triangles with t_min < t < t_max that face the ray's origin; with
// kAny any such triangle, whichever way it faces.
// Lanes with t_max < t_min are inactive.
//
// A lane's result depends neither on the others nor on the order of the visits:
// a hit counts only from its ray's entry into the leaf's box on, so a skipped
// box, which is entered after the best hit, cannot hold a better one; among
// equal hits the lower number wins.
template <bool kAny>
HWY_ATTR TriangleHits FindTriangles(const TriangleSet& set, Vec3 o, Vec3 d,
                                    Float t_min, Float t_max) {
  Float best = t_max;
  Int index = hn::Set(kInt, -1);
  const auto visit_leaf = [&](Mask meets, Float enter, Leaf leaf) HWY_ATTR {
    leaf.ForEach([&](int32_t i) HWY_ATTR {
      Mask is_hit;
      Float t;
      if (!MeetTriangle<kAny>(set, static_cast<size_t>(i), o, d, meets, &is_hit,
                              &t)) {
        return;
      }
      t = hn::Max(t, enter);
      const Int number = hn::Set(kInt, i);
      const Mask is_lower = hn::RebindMask(kFloat, hn::Lt(number, index));
      const Mask is_better =
          hn::Or(t < best, hn::And(IsEqual(t, best), is_lower));
      const Mask is_found = hn::And(is_hit, hn::And(t > t_min, is_better));
      index = If(is_found, number, index);
      // a search for any hit ends here
      best = If(is_found, kAny ? Set(-kMiss) : t, best);
    });
  };
  VisitLeaves(set, o, d, t_min, best, visit_leaf);
  const Mask is_found =
      hn::RebindMask(kFloat, hn::Gt(index, hn::Set(kInt, -1)));
  return {If(is_found, best, Set(kMiss)), index};
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
