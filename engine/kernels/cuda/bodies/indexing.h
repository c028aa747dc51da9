#pragma once

#include "engine/kernels/cuda/bodies/device.h"

// Bodies that move, select or make elements. Where the dtype does not matter an
// element is a Word: an unsigned integer of its size.
namespace replicant::kernels::cuda {

inline constexpr int kMaxRank = 8;

template <typename Word>
struct Fill {
  REPLICANT_DEVICE void operator()(int64_t i) const { y[i] = value; }

  Word* y;
  Word value;
};

// Copies element i of a box of `dims`, from source + sum index * from to target
// + sum index * to. Strides and offsets count elements.
template <typename Word>
struct BoxCopy {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    int64_t read = from_offset;
    int64_t write = to_offset;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const int64_t index = i % dims[axis];
      i /= dims[axis];
      read += index * from[axis];
      write += index * to[axis];
    }
    target[write] = source[read];
  }

  const Word* source;
  Word* target;
  int rank;
  int64_t dims[kMaxRank];
  int64_t from[kMaxRank];
  int64_t to[kMaxRank];
  int64_t from_offset;
  int64_t to_offset;
};

// Weights of a convolution, [O, C, P] with P = KH KW in the graph and [O, P, C]
// with channels last, as the library takes them.
struct WeightShape {
  // Index in the graph's order of element i of the channels-last order.
  REPLICANT_DEVICE int64_t GraphIndex(int64_t i) const {
    return (i / c / p * c + i % c) * p + i / c % p;
  }

  int64_t c, p;
};

template <typename T>
struct ToChannelsLast {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    y[i] = x[shape.GraphIndex(i)];
  }

  const T* x;
  T* y;
  WeightShape shape;
};

template <typename T, typename Result>
struct FromChannelsLast {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    Store(y, shape.GraphIndex(i), Load(x, i));
  }

  const T* x;
  Result* y;
  WeightShape shape;
};

// Element i of the rows that `indices` select; 0 where an index is outside.
template <typename Word>
struct Gather {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const int64_t row = indices[i / row_size];
    const bool is_inside = row >= 0 && row < num_rows;
    y[i] = is_inside ? table[row * row_size + i % row_size] : Word{0};
  }

  const Word* table;
  Indices indices;
  Word* y;
  int64_t num_rows;
  int64_t row_size;
};

// Element i of the sum of rows of dy by index, in the order of the indices.
template <typename T>
struct ScatterAdd {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    float sum = 0.0F;
    for (int64_t k = 0; k < num_indices; ++k) {
      if (indices[k] == i / row_size) {
        sum += Load(dy, k * row_size + i % row_size);
      }
    }
    Store(y, i, sum);
  }

  const T* dy;
  Indices indices;
  T* y;
  int64_t num_indices;
  int64_t row_size;
};

template <typename T>
struct OneHot {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    Store(y, i, indices[i / depth] == i % depth ? 1 : 0);
  }

  Indices indices;
  T* y;
  int64_t depth;
};

// Element i of images [B, H, W, C], shifted by offsets [B, 2]; edges repeat.
template <typename Word>
struct RandomShift {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const int64_t c = i % channels;
    const int64_t column = i / channels % width;
    const int64_t row = i / channels / width % height;
    const int64_t n = i / channels / width / height;
    const int64_t from_row = Clamp(row + offsets[2 * n], height);
    const int64_t from_column = Clamp(column + offsets[2 * n + 1], width);
    y[i] = x[((n * height + from_row) * width + from_column) * channels + c];
  }
  static REPLICANT_DEVICE int64_t Clamp(int64_t i, int64_t size) {
    return i < 0 ? 0 : (i < size ? i : size - 1);
  }

  const Word* x;
  const int32_t* offsets;
  Word* y;
  int64_t height, width, channels;
};

// Pixel i of [..., P, K]: pixel p of frame k of a stack, from frames [N, F].
struct GatherStacks {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const int64_t p = i / depth % pixels;
    const int64_t n = i / depth / pixels;
    const int64_t slot = slots[n * depth + i % depth];
    const bool is_inside = slot >= 0 && slot < num_frames;
    for (int64_t c = 0; c < channels; ++c) {
      y[i * channels + c] =
          is_inside ? frames[slot * frame_bytes + begin + p * channels + c]
                    : uint8_t{0};
    }
  }

  const uint8_t* frames;
  const int32_t* slots;
  uint8_t* y;
  int64_t num_frames, frame_bytes;
  int64_t depth;  // K
  int64_t begin, pixels, channels;
};

struct RoundToBF16 {
  REPLICANT_DEVICE void operator()(int64_t i) const { Store(y, i, x[i]); }

  const float* x;
  BFloat16* y;
};

// Index of the largest of `columns` elements of row i, the first of equal ones.
template <typename T>
struct ArgMax {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    int64_t best = 0;
    for (int64_t k = 1; k < columns; ++k) {
      if (Load(x, i * columns + k) > Load(x, i * columns + best)) best = k;
    }
    y[i] = best;
  }

  const T* x;
  int64_t* y;
  int64_t columns;
};

}  // namespace replicant::kernels::cuda
