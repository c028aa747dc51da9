#pragma once

#include "engine/kernels/cuda/bodies/device.h"

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
  REPLICANT_DEVICE NormBlock(const T* data, int64_t row, int count,
                             int64_t channels, int64_t channel) {
    if (data == nullptr) return;
    REPLICANT_UNROLL
    for (int k = 0; k < kRows; ++k) {
      if (k >= count) break;
      rows[k] = Pack<T, kLanes>::At(data, (row + k) * channels + channel);
    }
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
  static constexpr int kRows = 4;

  REPLICANT_DEVICE void operator()(int64_t i) const {
    const NormSlice slice = shape.template SliceOf<kLanes>(i);
    const NormParameters<V, kLanes> p(mean, variance, gamma, beta, epsilon,
                                      slice);
    for (int64_t row = slice.begin; row < slice.end; row += kRows) {
      const int size = BlockSize<kRows>(slice.end - row);
      using Block = NormBlock<T, kLanes, kRows>;
      const Block block(x, row, size, shape.channels, slice.channel);
      const Block added(residual, row, size, shape.channels, slice.channel);
      REPLICANT_UNROLL
      for (int k = 0; k < kRows; ++k) {
        if (k >= size) break;
        Pack<T, kLanes> result;
        REPLICANT_UNROLL
        for (int lane = 0; lane < kLanes; ++lane) {
          float value = p.Apply(block.rows[k].Get(lane), lane);
          if (residual != nullptr) value += added.rows[k].Get(lane);
          // NaN is kept
          result.Set(lane, has_relu && value < 0.0F ? 0.0F : value);
        }
        result.StoreAt(y, (row + k) * shape.channels + slice.channel);
      }
    }
  }

  const T* x;
  const V* gamma;
  const V* beta;
  const V* mean;
  const V* variance;
  const T* residual;  // null: none
  T* y;
  NormRows shape;
  float epsilon;
  bool has_relu;
};

// Inputs of the gradients.
template <typename T, typename V>
struct BatchNormInputs {
  // A few rows of a slice.
  template <int kLanes, int kRows>
  struct Block {
    REPLICANT_DEVICE Block(const BatchNormInputs& in,
                           const NormParameters<V, kLanes>& parameters,
                           const NormSlice& slice, int64_t row, int size)
        : p(parameters),
          dy(in.dy, row, size, in.shape.channels, slice.channel),
          x(in.x, row, size, in.shape.channels, slice.channel),
          y(in.has_relu ? in.y : nullptr, row, size, in.shape.channels,
            slice.channel),
          has_relu(in.has_relu),
          has_y(in.y != nullptr) {}

    // x^
    REPLICANT_DEVICE float Normalised(int k, int lane) const {
      return p.Normalised(x.rows[k].Get(lane), lane);
    }
    // dy through the relu: 0 where the relu has cut off.
    REPLICANT_DEVICE float Gradient(int k, int lane) const {
      const float d = dy.rows[k].Get(lane);
      if (!has_relu) return d;
      const float value =
          has_y ? y.rows[k].Get(lane) : p.Apply(x.rows[k].Get(lane), lane);
      return value > 0.0F ? d : 0.0F;
    }

    const NormParameters<V, kLanes>& p;
    const NormBlock<T, kLanes, kRows> dy, x, y;
    const bool has_relu, has_y;
  };

  template <int kLanes>
  REPLICANT_DEVICE NormParameters<V, kLanes> ParametersOf(
      const NormSlice& slice) const {
    return {mean, variance, gamma, beta, epsilon, slice};
  }

  // Calls visit(block, k, row) for each row of a slice: row k of a block of up
  // to kRows.
  template <int kRows, int kLanes, typename Visit>
  REPLICANT_DEVICE void ForRows(const NormSlice& slice,
                                const NormParameters<V, kLanes>& p,
                                const Visit& visit) const {
    for (int64_t row = slice.begin; row < slice.end; row += kRows) {
      const int size = BlockSize<kRows>(slice.end - row);
      const Block<kLanes, kRows> block(*this, p, slice, row, size);
      REPLICANT_UNROLL
      for (int k = 0; k < kRows; ++k) {
        if (k >= size) break;
        visit(block, k, row + k);
      }
    }
  }

  const T* dy;
  const T* x;
  const V* gamma;
  const V* beta;
  const V* mean;
  const V* variance;
  const T* y;  // null: computed again
  NormRows shape;
  float epsilon;
  bool has_relu;
};

// Element (example, part, c): the sums of dz and of dz x^ over a part of the
// rows that share an entry, [examples, parts, C] each.
template <typename T, typename V, int kLanes>
struct BatchNormSums {
  static constexpr int kRows = 4;

  REPLICANT_DEVICE void operator()(int64_t i) const {
    const NormSlice slice = in.shape.template SliceOf<kLanes>(i);
    const auto p = in.template ParametersOf<kLanes>(slice);
    float sum[kLanes] = {};
    float dot[kLanes] = {};
    in.template ForRows<kRows>(slice, p,
                               [&](const auto& block, int k, int64_t /*row*/) {
                                 REPLICANT_UNROLL
                                 for (int lane = 0; lane < kLanes; ++lane) {
                                   const float dz = block.Gradient(k, lane);
                                   sum[lane] += dz;
                                   dot[lane] += dz * block.Normalised(k, lane);
                                 }
                               });
    REPLICANT_UNROLL
    for (int lane = 0; lane < kLanes; ++lane) {
      sums[i * kLanes + lane] = sum[lane];
      dots[i * kLanes + lane] = dot[lane];
    }
  }

  BatchNormInputs<T, V> in;
  float* sums;
  float* dots;
};

// Row (example, c): dbeta and dgamma, the sums over all parts. They are stored
// as f32 over the sums of part 0 as well, for BatchNormTotals.
template <typename V>
struct BatchNormVectors {
  REPLICANT_DEVICE void operator()(const Warp& warp, int64_t i) const {
    const int64_t first = i / channels * parts * channels + i % channels;
    const auto total = [&](const float* values) {
      return warp.Sum(
          parts, [&](int64_t part) { return values[first + part * channels]; });
    };
    const float sum = total(sums);
    const float dot = total(dots);
    if (!warp.is_first_lane()) return;
    sums[first] = sum;
    dots[first] = dot;
    Store(dbeta, i, sum);
    Store(dgamma, i, dot);
  }

  float* sums;
  float* dots;
  V* dgamma;
  V* dbeta;
  int64_t channels;
  int64_t parts;
};

// Element c: the sums over examples of gamma dbeta and gamma dgamma: what the
// mean and the variance carry.
template <typename V>
struct BatchNormTotals {
  REPLICANT_DEVICE void operator()(int64_t c) const {
    float sum = 0.0F;
    float dot = 0.0F;
    for (int64_t e = 0; e < examples; ++e) {
      const float g = Load(gamma, e * channels + c);
      sum += g * sums[e * parts * channels + c];
      dot += g * dots[e * parts * channels + c];
    }
    totals[c] = sum;
    totals[channels + c] = dot;
  }

  const V* gamma;
  const float* sums;
  const float* dots;
  float* totals;  // [2, C]
  int64_t channels;
  int64_t examples;
  int64_t parts;
};

// A slice of dx = scale (d - sum(d) / n - x^ sum(d x^) / n), d = gamma dz, and
// of dz, the residual's gradient, if there is one. Without dx: dz only.
template <typename T, typename V, int kLanes>
struct BatchNormInputGradient {
  static constexpr int kRows = 2;

  REPLICANT_DEVICE void operator()(int64_t i) const {
    const NormRows& shape = in.shape;
    const NormSlice slice = shape.template SliceOf<kLanes>(i);
    const auto p = in.template ParametersOf<kLanes>(slice);
    const auto count = static_cast<float>(shape.rows);
    float sums[kLanes] = {};
    float dots[kLanes] = {};
    if (dx != nullptr) {
      REPLICANT_UNROLL
      for (int lane = 0; lane < kLanes; ++lane) {
        const int64_t c = slice.channel + lane;
        sums[lane] = totals[c] / count;
        dots[lane] = totals[shape.channels + c] / count;
      }
    }
    in.template ForRows<kRows>(
        slice, p, [&](const auto& block, int k, int64_t row) {
          Pack<T, kLanes> to_x, to_residual;
          REPLICANT_UNROLL
          for (int lane = 0; lane < kLanes; ++lane) {
            const float gradient = block.Gradient(k, lane);
            to_residual.Set(lane, gradient);
            to_x.Set(lane,
                     p.scales[lane] * (gradient * p.gammas[lane] - sums[lane] -
                                       block.Normalised(k, lane) * dots[lane]));
          }
          const int64_t at = row * shape.channels + slice.channel;
          if (dx != nullptr) to_x.StoreAt(dx, at);
          if (dz != nullptr) to_residual.StoreAt(dz, at);
        });
  }

  BatchNormInputs<T, V> in;
  const float* totals;
  T* dx;  // null: dz only
  T* dz;  // null: none
};

// Element c of dmoments [2, C] of BatchNormApply: -scale sum(d) and
// -scale^2 / 2 sum(d x^).
template <typename V>
struct BatchNormMomentsGradient {
  REPLICANT_DEVICE void operator()(int64_t c) const {
    const float scale = 1.0F / sqrtf(Load(variance, c) + epsilon);
    Store(dmoments, c, -scale * totals[c]);
    Store(dmoments, channels + c, -0.5F * scale * scale * totals[channels + c]);
  }

  const V* variance;
  const float* totals;
  V* dmoments;
  int64_t channels;
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
