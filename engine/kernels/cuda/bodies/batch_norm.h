#pragma once

#include "engine/kernels/cuda/bodies/device.h"
#include "engine/kernels/cuda/bodies/pool.h"

// Batch norm (graph/ops/norm.h) over images as rows of channels, [rows, C]. A
// thread takes kLanes neighbouring channels of a part of the rows, and loads a
// few rows before it computes. Sums over all rows add up the parts' sums.
namespace replicant::kernels::cuda {

// What one thread works on: channels [channel, channel + kLanes) of rows
// [begin, end), whose gammas and betas start at `entry`.
struct NormSlice {
  int64_t channel, entry, begin, end;
};

// Rows of channels, and which of them share an entry of gamma and beta: all, or
// the rows of each example. Rows that share one are cut into `parts`.
struct NormRows {
  // Element i of [examples, parts, C / kLanes].
  template <int kLanes>
  REPLICANT_DEVICE NormSlice SliceOf(int64_t i) const {
    const int64_t groups = channels / kLanes;
    const int64_t channel = i % groups * kLanes;
    const int64_t part = i / groups % parts;
    const int64_t example = i / groups / parts;
    const int64_t begin = example * example_size + part * part_size;
    return {.channel = channel,
            .entry = example * channels + channel,
            .begin = begin,
            .end = begin + SizeOf(part)};
  }
  REPLICANT_DEVICE int64_t SizeOf(int64_t part) const {
    const int64_t left = example_size - part * part_size;
    return left < part_size ? left : part_size;
  }

  int64_t rows;
  int64_t channels;
  int64_t example_size;  // rows of an example; `rows` if all share
  int64_t parts;
  int64_t part_size;  // the last part may be smaller
};

// Up to kRows rows of a slice.
template <typename T, int kLanes, int kRows>
struct NormBlock {
  NormBlock() = default;
  REPLICANT_DEVICE NormBlock(const T* data, int64_t row, int count,
                             int64_t channels, int64_t channel) {
    Read(data, row, count, channels, channel);
  }
  REPLICANT_DEVICE void Read(const T* data, int64_t row, int count,
                             int64_t channels, int64_t channel) {
    REPLICANT_UNROLL
    for (int k = 0; k < kRows; ++k) {
      if (k >= count) break;
      rows[k] = Pack<T, kLanes>::At(data, (row + k) * channels + channel);
    }
  }
  // Nothing for null.
  REPLICANT_DEVICE void ReadIfAny(const T* data, int64_t row, int count,
                                  int64_t channels, int64_t channel) {
    if (data != nullptr) Read(data, row, count, channels, channel);
  }

  Pack<T, kLanes> rows[kRows];
};

template <int kRows>
REPLICANT_DEVICE int BlockSize(int64_t left) {
  return left < kRows ? static_cast<int>(left) : kRows;
}

// Element (part, c): mean and sum of squared distances from it over a part of
// the rows, [parts, 2, C]. Blocks of rows are combined as parts are, because a
// difference of squares loses all digits if the mean is large against the
// standard deviation.
template <typename T, int kLanes>
struct ColumnMoments {
  static constexpr int kRows = 8;

  REPLICANT_DEVICE void operator()(int64_t i) const {
    const NormSlice slice = shape.template SliceOf<kLanes>(i);
    float mean[kLanes] = {};
    float squares[kLanes] = {};
    float total = 0.0F;
    for (int64_t row = slice.begin; row < slice.end; row += kRows) {
      const int size = BlockSize<kRows>(slice.end - row);
      const NormBlock<T, kLanes, kRows> block(x, row, size, shape.channels,
                                              slice.channel);
      const auto count = static_cast<float>(size);
      const float share = count / (total + count);
      REPLICANT_UNROLL
      for (int lane = 0; lane < kLanes; ++lane) {
        float sum = 0.0F;
        REPLICANT_UNROLL
        for (int k = 0; k < kRows; ++k) {
          if (k >= size) break;
          sum += block.rows[k].Get(lane);
        }
        const float own = sum / count;
        float own_squares = 0.0F;
        REPLICANT_UNROLL
        for (int k = 0; k < kRows; ++k) {
          if (k >= size) break;
          const float d = block.rows[k].Get(lane) - own;
          own_squares += d * d;
        }
        // Chan et al. 1979, eq. 2.1
        const float distance = own - mean[lane];
        mean[lane] += distance * share;
        squares[lane] += own_squares + distance * distance * total * share;
      }
      total += count;
    }
    const int64_t part = i / (shape.channels / kLanes);
    REPLICANT_UNROLL
    for (int lane = 0; lane < kLanes; ++lane) {
      const int64_t c = slice.channel + lane;
      moments[2 * part * shape.channels + c] = mean[lane];
      moments[(2 * part + 1) * shape.channels + c] = squares[lane];
    }
  }

  const T* x;
  float* moments;
  NormRows shape;  // example_size: all rows
};

// Row c: mean and biased variance of all rows.
template <typename V>
struct CombineColumnMoments {
  REPLICANT_DEVICE void operator()(const Warp& warp, int64_t c) const {
    const auto count = static_cast<float>(shape.rows);
    const auto size_of = [&](int64_t part) {
      return static_cast<float>(shape.SizeOf(part));
    };
    const auto at = [&](int64_t part, int64_t which) {
      return moments[(2 * part + which) * shape.channels + c];
    };
    const float m = warp.Sum(shape.parts, [&](int64_t part) {
      return size_of(part) * at(part, 0);
    }) / count;
    const float squares = warp.Sum(shape.parts, [&](int64_t part) {
      const float distance = at(part, 0) - m;
      return at(part, 1) + size_of(part) * distance * distance;
    });
    if (!warp.is_first_lane()) return;
    Store(mean, c, m);
    Store(variance, c, squares / count);
  }

  const float* moments;
  V* mean;
  V* variance;
  NormRows shape;  // as of ColumnMoments
};

// What a slice's channels are normalised by.
template <typename V, int kLanes>
struct NormParameters {
  REPLICANT_DEVICE NormParameters(const V* mean, const V* variance,
                                  const V* gamma, const V* beta, float epsilon,
                                  const NormSlice& slice) {
    REPLICANT_UNROLL
    for (int lane = 0; lane < kLanes; ++lane) {
      means[lane] = Load(mean, slice.channel + lane);
      scales[lane] =
          1.0F / sqrtf(Load(variance, slice.channel + lane) + epsilon);
      gammas[lane] = Load(gamma, slice.entry + lane);
      betas[lane] = Load(beta, slice.entry + lane);
    }
  }
  // x^
  REPLICANT_DEVICE float Normalised(float x, int lane) const {
    return (x - means[lane]) * scales[lane];
  }
  REPLICANT_DEVICE float Apply(float x, int lane) const {
    return Normalised(x, lane) * gammas[lane] + betas[lane];
  }

  float means[kLanes];
  float scales[kLanes];
  float gammas[kLanes];
  float betas[kLanes];
};

// A slice of y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, with the
// residual and the relu, if there are any.
template <typename T, typename V, int kLanes>
struct BatchNorm {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    Run<4>(i, [](float value, int /*lane*/) { return value; });
  }
  // With make_added(value, lane) in the place of the residual's values.
  template <int kRows, typename Added>
  REPLICANT_DEVICE void Run(int64_t i, const Added& make_added) const {
    const NormSlice slice = shape.template SliceOf<kLanes>(i);
    const NormParameters<V, kLanes> p(mean, variance, gamma, beta, epsilon,
                                      slice);
    for (int64_t row = slice.begin; row < slice.end; row += kRows) {
      const int size = BlockSize<kRows>(slice.end - row);
      using Block = NormBlock<T, kLanes, kRows>;
      const Block block(x, row, size, shape.channels, slice.channel);
      Block added;
      added.ReadIfAny(residual, row, size, shape.channels, slice.channel);
      REPLICANT_UNROLL
      for (int k = 0; k < kRows; ++k) {
        if (k >= size) break;
        Pack<T, kLanes> result;
        REPLICANT_UNROLL
        for (int lane = 0; lane < kLanes; ++lane) {
          float value = p.Apply(block.rows[k].Get(lane), lane);
          if (residual != nullptr) {
            value += make_added(added.rows[k].Get(lane), lane);
          }
          // NaN is kept
          result.Set(lane, has_relu && value < 0.0F ? 0.0F : value);
        }
        const int64_t at = (row + k) * shape.channels + slice.channel;
        result.StoreAt(y, at);
        if (mask != nullptr) mask[at / kLanes] = MaskOf(result);
      }
    }
  }
  // Bit i: whether lane i is positive.
  REPLICANT_DEVICE static uint8_t MaskOf(const Pack<T, kLanes>& pack) {
    unsigned bits = 0;
    REPLICANT_UNROLL
    for (int lane = 0; lane < kLanes; ++lane) {
      if (pack.Get(lane) > 0.0F) bits |= 1U << lane;
    }
    return static_cast<uint8_t>(bits);
  }

  const T* x;
  const V* gamma;
  const V* beta;
  const V* mean;
  const V* variance;
  const T* residual;  // null: none
  T* y;
  uint8_t* mask;  // null: none; with kMaxLanes only
  NormRows shape;
  float epsilon;
  bool has_relu;
};

// BatchNorm whose residual is another batch norm's result, rounded as in
// memory. norm.residual is that norm's x.
template <typename T, typename V, int kLanes>
struct BatchNormPair {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const NormParameters<V, kLanes> p(mean, variance, gamma, beta, epsilon,
                                      norm.shape.template SliceOf<kLanes>(i));
    norm.template Run<2>(i, [&](float value, int lane) {
      return static_cast<float>(static_cast<T>(p.Apply(value, lane)));
    });
  }

  BatchNorm<T, V, kLanes> norm;
  const V* gamma;
  const V* beta;
  const V* mean;
  const V* variance;
  float epsilon;
};

// Element i of [B, yh, yw, C / kLanes]: the largest result of a norm with a
// relu in a window, rounded as in memory, and its place.
template <typename T, typename V, int kLanes>
struct BatchNormMaxPool {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const int64_t groups = s.c / kLanes;
    const int64_t pixel = i / groups;
    const int64_t channel = i % groups * kLanes;
    const NormParameters<V, kLanes> p(
        mean, variance, gamma, beta, epsilon,
        NormSlice{.channel = channel, .entry = channel, .begin = 0, .end = 0});
    const WindowMax<T, kLanes> max(
        x, s, pixel / s.yw / s.yh, pixel / s.yw % s.yh, pixel % s.yw, channel,
        [&](float value, int lane) {
          const float result = p.Apply(value, lane);
          // NaN is kept
          return result < 0.0F ? 0.0F
                               : static_cast<float>(static_cast<T>(result));
        });
    Pack<T, kLanes> result;
    Pack<uint8_t, kLanes> place;
    REPLICANT_UNROLL
    for (int lane = 0; lane < kLanes; ++lane) {
      result.Set(lane, max.value[lane]);
      place.values[lane] = static_cast<uint8_t>(max.place[lane]);
    }
    result.StoreAt(y, i * kLanes);
    place.StoreAt(places, i * kLanes);
  }

  const T* x;
  const V* gamma;
  const V* beta;
  const V* mean;
  const V* variance;
  T* y;
  uint8_t* places;
  PoolShape s;
  float epsilon;
};

// Element c of the moments of `parts` equal parts, [parts, 2, C] -> [2, C].
template <typename V>
struct CombineMoments {
  REPLICANT_DEVICE void operator()(int64_t c) const {
    float mean = 0.0F;
    for (int64_t r = 0; r < parts; ++r) {
      mean += Load(moments, 2 * r * channels + c);
    }
    mean /= static_cast<float>(parts);
    float squares = 0.0F;
    for (int64_t r = 0; r < parts; ++r) {
      const float distance = Load(moments, 2 * r * channels + c) - mean;
      squares +=
          Load(moments, (2 * r + 1) * channels + c) + distance * distance;
    }
    Store(y, c, mean);
    Store(y, channels + c, squares / static_cast<float>(parts));
  }

  const V* moments;
  V* y;
  int64_t parts;
  int64_t channels;
};

// Element (part, c) of the gradient of CombineMoments:
//   dmean_r = (dmean + 2 dvariance (mean_r - mean)) / R
//   dvariance_r = dvariance / R
template <typename V>
struct CombineMomentsGradient {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const int64_t c = i % channels;
    const int64_t r = i / channels;
    const auto count = static_cast<float>(parts);
    const float dvariance = Load(dmoments, channels + c);
    const float distance =
        Load(moments, 2 * r * channels + c) - Load(combined, c);
    Store(y, 2 * r * channels + c,
          (Load(dmoments, c) + 2.0F * dvariance * distance) / count);
    Store(y, (2 * r + 1) * channels + c, dvariance / count);
  }

  const V* dmoments;
  const V* moments;
  const V* combined;
  V* y;
  int64_t parts;
  int64_t channels;
};

}  // namespace replicant::kernels::cuda
