#include "base/tensor/tensor_view.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "base/error.h"
#include "tests/support/message_of.h"

namespace replicant {
namespace {

using testing::MessageOf;

TEST(TensorViewTest, SpanSeesTheElementsInOrder) {
  const std::array<float, 6> values = {0, 1, 2, 3, 4, 5};
  const TensorView view(DType::kF32, {2, 3}, values.data());
  EXPECT_EQ(view.size_bytes(), 24U);
  EXPECT_EQ(view.Span<float>().size(), 6U);
  EXPECT_EQ(view.Span<float>()[4], 4.0F);
}

TEST(TensorViewTest, SpanOfAnotherTypeIsRefused) {
  const std::array<float, 6> values{};
  const TensorView view(DType::kF32, {2, 3}, values.data());
  EXPECT_EQ(MessageOf<ShapeError>([&] { view.Span<int32_t>(); }),
            "Span: i32 elements requested from a tensor [2,3] of f32");
}

TEST(TensorViewTest, MutableViewWritesThrough) {
  std::array<int32_t, 6> values{};
  const MutableTensorView view(DType::kI32, {2, 3}, values.data());
  view[1].Span<int32_t>()[2] = 7;
  view.Slice(0, 1).Span<int32_t>()[0] = 5;
  EXPECT_EQ(values, (std::array<int32_t, 6>{5, 0, 0, 0, 0, 7}));
  const TensorView read_only = view;
  EXPECT_EQ(read_only.Span<int32_t>()[5], 7);
}

// Would catch a stride in elements used as bytes, and a slice that drops the
// dimension it should keep.
TEST(TensorViewTest, SlicesAndRowsStartWhereTheyShould) {
  const std::array<int64_t, 12> values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const TensorView view(DType::kI64, {3, 2, 2}, values.data());
  EXPECT_EQ(view.Slice(1, 3).shape(), Shape({2, 2, 2}));
  EXPECT_EQ(view.Slice(1, 3).Span<int64_t>()[0], 4);
  EXPECT_EQ(view[2].shape(), Shape({2, 2}));
  EXPECT_EQ(view[2][1].Span<int64_t>()[1], 11);
  EXPECT_EQ(view[2][1][0].shape(), Shape());
  EXPECT_EQ(view[2][1][0].Span<int64_t>()[0], 10);
  EXPECT_EQ(view.Slice(3, 3).shape(), Shape({0, 2, 2}));
}

// An empty tensor may have no memory; its slices must not invent an address.
TEST(TensorViewTest, EmptyTensorsSliceWithoutData) {
  const TensorView view(DType::kF32, {5, 0}, nullptr);
  EXPECT_EQ(view.Slice(2, 4).shape(), Shape({2, 0}));
  EXPECT_EQ(view[4].data(), nullptr);
  EXPECT_TRUE(view.Span<float>().empty());
}

TEST(TensorViewDeathTest, BadDataOrRowsAbort) {
  const std::array<float, 6> values{};
  const TensorView view(DType::kF32, {2, 3}, values.data());
  EXPECT_DEATH(view[2], "rows \\[2, 3\\) of \\[2,3\\]");
  EXPECT_DEATH(view.Slice(2, 1), "rows \\[2, 1\\) of \\[2,3\\]");
  EXPECT_DEATH(view.Slice(-1, 1), "rows \\[-1, 1\\) of \\[2,3\\]");
  EXPECT_DEATH(view[0][0][0], "slice of a scalar");
  EXPECT_DEATH(TensorView(DType::kF32, {1}, nullptr),
               "no data for \\[1\\] f32");
  EXPECT_DEATH(TensorView(DType::kF32, {1}, view.data() + 1), "not aligned");
}

}  // namespace
}  // namespace replicant
