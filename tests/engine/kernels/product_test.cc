#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/kernels/cpu/primitive.h"

namespace replicant::kernels::cpu {
namespace {

using dnnl::memory;

constexpr int64_t kPositions = 36, kRows = 5, kSummed = 32, kColumns = 64;

float ValueOfA(int64_t position, int64_t row, int64_t k) {
  return static_cast<float>((position * 7 + row * 5 + k * 3) % 11 - 5);
}
float ValueOfB(int64_t position, int64_t k, int64_t column) {
  return static_cast<float>((position * 3 + k * 5 + column * 7) % 13 - 6);
}

memory::desc Positions(int64_t rows, int64_t columns) {
  return {{kPositions, rows, columns},
          memory::data_type::f32,
          memory::format_tag::abc};
}

// The product of all positions, by weights that lie in `b_layout`; `place`
// gives the index of an element of b.
template <typename Place>
std::vector<float> Multiply(const memory::desc& b_layout, const Place& place,
                            int num_threads) {
  std::vector<float> a, b(static_cast<size_t>(kPositions * kSummed * kColumns));
  for (int64_t p = 0; p < kPositions; ++p) {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t k = 0; k < kSummed; ++k) a.push_back(ValueOfA(p, row, k));
    }
    for (int64_t k = 0; k < kSummed; ++k) {
      for (int64_t column = 0; column < kColumns; ++column) {
        b[static_cast<size_t>(place(p, k, column))] = ValueOfB(p, k, column);
      }
    }
  }
  ScratchLayout layout;
  Product product(Positions(kRows, kSummed), b_layout, /*bias=*/{},
                  Positions(kRows, kColumns), AttributesOf({}), num_threads,
                  &layout);
  std::vector<float> result(static_cast<size_t>(kPositions * kRows * kColumns),
                            NAN);
  std::vector<std::byte> scratch(layout.size_bytes());
  const auto bind = [&](int argument, const std::vector<float>& data) {
    product.Bind(argument, reinterpret_cast<const std::byte*>(data.data()));
  };
  bind(DNNL_ARG_SRC, a);
  bind(DNNL_ARG_WEIGHTS, b);
  bind(DNNL_ARG_DST, result);
  product.BindScratch(scratch.data());
  product.Run();
  return result;
}

std::vector<float> Expected() {
  std::vector<float> result;
  for (int64_t p = 0; p < kPositions; ++p) {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t column = 0; column < kColumns; ++column) {
        float sum = 0;  // of whole numbers
        for (int64_t k = 0; k < kSummed; ++k) {
          sum += ValueOfA(p, row, k) * ValueOfB(p, k, column);
        }
        result.push_back(sum);
      }
    }
  }
  return result;
}

TEST(ProductTest, PositionsAreMultipliedOnAnyNumberOfThreads) {
  const auto place = [](int64_t p, int64_t k, int64_t column) {
    return (p * kSummed + k) * kColumns + column;
  };
  for (const int num_threads : {1, 2, 5}) {
    EXPECT_EQ(Multiply(Positions(kSummed, kColumns), place, num_threads),
              Expected())
        << num_threads;
  }
}

// as the library wants the weights on AVX-512
TEST(ProductTest, WeightsOfPositionsMayLieInBlocks) {
  const memory::desc blocks({kPositions, kSummed, kColumns},
                            memory::data_type::f32,
                            memory::format_tag::aCB16b32c);
  const auto place = [](int64_t p, int64_t k, int64_t column) {
    constexpr int64_t kHigh = 16, kWide = 32;
    const int64_t block =
        (p * (kColumns / kWide) + column / kWide) * (kSummed / kHigh) +
        k / kHigh;
    return block * kHigh * kWide + k % kHigh * kWide + column % kWide;
  };
  for (const int num_threads : {1, 2, 5}) {
    EXPECT_EQ(Multiply(blocks, place, num_threads), Expected()) << num_threads;
  }
}

}  // namespace
}  // namespace replicant::kernels::cpu
