#pragma once

#include "engine/kernels/cuda/bodies/device.h"

// Random numbers by the rule of engine/graph/ops/random.h.
namespace replicant::kernels::cuda {

// Two 64-bit words of one Philox4x32-10 block.
struct RandomWords {
  uint64_t first, second;
};

// Philox4x32() of base/rng.h for the device.
inline REPLICANT_DEVICE RandomWords PhiloxWords(uint32_t c0, uint32_t c1,
                                                uint32_t c2, uint32_t c3,
                                                uint64_t key) {
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * c0;
    const uint64_t product1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(product1);
    c3 = static_cast<uint32_t>(product0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {c0 | uint64_t{c1} << 32, c2 | uint64_t{c3} << 32};
}

// 53 bits as a number in [0, 1).
inline REPLICANT_DEVICE double ToUnit(uint64_t word) {
  return static_cast<double>(word >> 11) * 0x1p-53;
}

// The words of element i of an output of rows of `row_size` elements.
struct RandomElements {
  REPLICANT_DEVICE RandomWords Words(int64_t i) const {
    const auto s = static_cast<uint64_t>(*step);
    const int64_t offset = row_offset == nullptr ? 0 : *row_offset;
    return PhiloxWords(static_cast<uint32_t>(s), static_cast<uint32_t>(s >> 32),
                       static_cast<uint32_t>(first_row + offset + i / row_size),
                       static_cast<uint32_t>(i % row_size), key);
  }

  const int64_t* step;
  const int64_t* row_offset;  // null: 0
  uint64_t key;
  int64_t first_row;
  int64_t row_size;
};

template <typename T>
struct RandomUniform {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    // 24 bits are exact in f32; more could round to 1
    Store(y, i, static_cast<float>(elements.Words(i).first >> 40) * 0x1p-24F);
  }

  RandomElements elements;
  T* y;
};

template <typename T>
struct RandomNormal {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    constexpr double kPi = 3.14159265358979323846;
    const RandomWords words = elements.Words(i);
    // 1 - u is in (0, 1], where the logarithm is finite
    const double radius = sqrt(-2.0 * log(1.0 - ToUnit(words.first)));
    Store(y, i,
          static_cast<float>(radius * cos(2.0 * kPi * ToUnit(words.second))));
  }

  RandomElements elements;
  T* y;
};

struct RandomInt {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    y[i] = static_cast<int32_t>(
        low + floor(ToUnit(elements.Words(i).first) * (high - low)));
  }

  RandomElements elements;
  int32_t* y;
  double low, high;
};

}  // namespace replicant::kernels::cuda
