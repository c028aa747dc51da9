#include "base/tensor/host_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "base/tensor/host_tensor.h"
#include "tests/support/tensors.h"

namespace replicant {
namespace {

using testing::IsSameTensor;
using testing::MakeTensor;

bool IsAligned(const void* data, size_t alignment) {
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

TEST(HostBufferTest, IsAlignedAndZeroedAtEverySize) {
  for (const size_t size : {size_t{1}, size_t{63}, size_t{4096},
                            (size_t{4} << 20) - 1, (size_t{4} << 20) + 5}) {
    SCOPED_TRACE(size);
    const HostBuffer buffer(size);
    ASSERT_EQ(buffer.size_bytes(), size);
    EXPECT_TRUE(IsAligned(buffer.data(), 64));
    if (size >= size_t{4} << 20) {
      EXPECT_TRUE(IsAligned(buffer.data(), size_t{2} << 20));
    }
    EXPECT_TRUE(std::ranges::all_of(
        buffer.bytes(), [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST(HostBufferTest, EmptyHasNoData) {
  const HostBuffer buffer(0);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_TRUE(buffer.bytes().empty());
}

// Would catch a source that still claims a size without memory.
TEST(HostBufferTest, MovingKeepsTheAddressAndEmptiesTheSource) {
  HostBuffer a(100, HostBuffer::Fill::kUninitialised);
  const std::byte* data = a.data();
  HostBuffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b.size_bytes(), 100U);
  // what a move leaves is part of the contract
  // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
  EXPECT_TRUE(a.bytes().empty());
  a = std::move(b);
  EXPECT_EQ(a.data(), data);
}

TEST(HostBufferTest, AdoptedMemoryLivesAsLongAsTheBufferAndIsNotFreed) {
  auto block = std::make_shared<HostBuffer>(256);
  const std::weak_ptr<HostBuffer> watched = block;
  std::byte* const data = block->data() + 64;
  HostBuffer part = HostBuffer::Adopt({data, 100}, std::move(block));
  EXPECT_EQ(part.data(), data);
  EXPECT_EQ(part.size_bytes(), 100U);
  HostBuffer moved = std::move(part);
  EXPECT_EQ(moved.data(), data);
  EXPECT_FALSE(watched.expired());
  moved = HostBuffer(10);
  EXPECT_TRUE(watched.expired());
}

TEST(HostBufferDeathTest, AdoptedMemoryMustBeAligned) {
  auto block = std::make_shared<HostBuffer>(256);
  EXPECT_DEATH(HostBuffer::Adopt(block->bytes().subspan(1), block),
               "kAlignment");
}

TEST(HostTensorTest, CloneIsEqualAndSeparate) {
  const HostTensor original = MakeTensor<float>({2, 2}, {1, 2, 3, 4});
  HostTensor copy = HostTensor::Clone(original.view());
  EXPECT_TRUE(IsSameTensor(copy, original));
  copy.MutableSpan<float>()[0] = 9;
  EXPECT_EQ(original.Span<float>()[0], 1.0F);
}

TEST(HostTensorTest, SpanOfAnotherTypeIsRefused) {
  HostTensor tensor(DType::kU8, {3});
  EXPECT_THROW(tensor.Span<bool>(), ShapeError);
  EXPECT_THROW(tensor.MutableSpan<bool>(), ShapeError);
}

}  // namespace
}  // namespace replicant
