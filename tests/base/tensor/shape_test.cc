#include "base/tensor/shape.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "base/error.h"
#include "tests/support/message_of.h"

namespace replicant {
namespace {

using testing::MessageOf;

TEST(ShapeTest, CountsElementsOfScalarsAndEmptyShapes) {
  EXPECT_EQ(Shape().num_elements(), 1);
  EXPECT_EQ(Shape({3, 51}).num_elements(), 153);
  EXPECT_EQ(Shape({3, 0, 51}).num_elements(), 0);
  EXPECT_EQ(Shape({1, 2, 3, 4, 5, 6, 7, 8}).num_elements(), 40320);
}

TEST(ShapeTest, PrintsAsAList) {
  EXPECT_EQ(Shape().ToString(), "[]");
  EXPECT_EQ(Shape({7}).ToString(), "[7]");
  EXPECT_EQ(Shape({3, 51}).ToString(), "[3,51]");
}

// Would catch leftovers beyond the rank that make equal shapes differ.
TEST(ShapeTest, ComparesRankAndDimensions) {
  EXPECT_EQ(Shape({4, 3, 51}).WithoutLeading(), Shape({3, 51}));
  EXPECT_EQ(Shape({4, 3}).WithLeading(9), Shape({9, 3}));
  EXPECT_NE(Shape({3}), Shape({3, 1}));
  EXPECT_NE(Shape({0}), Shape());
}

TEST(ShapeTest, StridesAreProductsOfTheInnerDimensions) {
  EXPECT_EQ(Shape({2, 3, 4}).RowMajorStrides(), (Shape::Strides{12, 4, 1}));
  EXPECT_EQ(Shape({2, 0, 4}).RowMajorStrides(), (Shape::Strides{4, 4, 1}));
  EXPECT_EQ(Shape().RowMajorStrides(), Shape::Strides{});
}

TEST(ShapeTest, RefusesNegativeDimensions) {
  EXPECT_EQ(MessageOf<ShapeError>([] {
              Shape({2, -1});
            }),
            "Shape: [2,-1] has a negative dimension");
}

TEST(ShapeTest, RefusesMoreThanEightDimensions) {
  EXPECT_EQ(MessageOf<ShapeError>([] {
              Shape({1, 1, 1, 1, 1, 1, 1, 1, 1});
            }),
            "Shape: 9 dimensions; at most 8 are allowed");
}

// The largest count is accepted, one more is not, also where the product wraps
// to something small or a zero hides it.
TEST(ShapeTest, RefusesProductsThatOverflow) {
  EXPECT_EQ(Shape({Shape::kMaxElements}).num_elements(), Shape::kMaxElements);
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  const std::vector<std::vector<int64_t>> too_large = {
      {Shape::kMaxElements + 1},
      {int64_t{1} << 32, int64_t{1} << 32},
      {kHuge, kHuge, kHuge},
      {0, kHuge, 2},
      {kHuge, 2, 0}};
  for (const std::vector<int64_t>& dims : too_large) {
    EXPECT_THROW(Shape(std::span<const int64_t>(dims)), ShapeError);
  }
  EXPECT_EQ(MessageOf<ShapeError>([] {
              Shape({0, int64_t{1} << 30, int64_t{1} << 30});
            }),
            "Shape: [0,1073741824,1073741824] has more than 2^60 - 1 elements "
            "(zero dimensions not counted)");
}

TEST(ShapeDeathTest, AxisOutsideTheRankAborts) {
  EXPECT_DEATH(Shape({3, 51})[2], "axis 2 of \\[3,51\\]");
  EXPECT_DEATH(Shape({3, 51})[-1], "axis -1 of \\[3,51\\]");
  EXPECT_DEATH(Shape().WithoutLeading(), "scalar");
}

}  // namespace
}  // namespace replicant
