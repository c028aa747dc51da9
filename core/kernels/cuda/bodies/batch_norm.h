#pragma once

#include "core/kernels/cuda/bodies/device.h"

// Batch norm (graph/ops/norm.h) over images as rows of channels, [rows, C].
// Sums over rows are cut into parts, so that the device has enough threads; the
// parts are added in turn, in their order.
namespace replicant::kernels::cuda {

// Rows of channels, and which of them share an entry of gamma and beta: all, or
// those of each example.
struct NormRows {
  REPLICANT_DEVICE int64_t EntryOf(int64_t row, int64_t channel) const {
    return row / example_size * channels + channel;
  }

  int64_t rows;
  int64_t channels;
  int64_t example_size;  // rows of an example; `rows` if all share
};

// Element (part, c): mean and sum of squared distances from it over a part of
// the rows, [parts, 2, C]. Two passes, because a difference of squares loses
// all digits if the mean is large against the standard deviation.
template <typename T>
struct ColumnMoments {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const int64_t c = i % channels;
    const int64_t part = i / channels;
    const int64_t begin = rows * part / parts;
    const int64_t end = rows * (part + 1) / parts;
    float sum = 0.0F;
    for (int64_t row = begin; row < end; ++row) {
      sum += Load(x, row * channels + c);
    }
    const float mean = sum / static_cast<float>(end - begin);
    float squares = 0.0F;
    for (int64_t row = begin; row < end; ++row) {
      const float d = Load(x, row * channels + c) - mean;
      squares += d * d;
    }
    moments[2 * part * channels + c] = mean;
    moments[(2 * part + 1) * channels + c] = squares;
  }

  const T* x;
  float* moments;
  int64_t rows;
  int64_t channels;
  int64_t parts;
};

// Element c: mean and biased variance of all rows (Chan et al. 1979, eq. 2.1).
template <typename V>
struct CombineColumnMoments {
  REPLICANT_DEVICE void operator()(int64_t c) const {
    float total = 0.0F;
    float m = 0.0F;
    float squares = 0.0F;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = rows * part / parts;
      const int64_t end = rows * (part + 1) / parts;
      const auto count = static_cast<float>(end - begin);
      const float distance = moments[2 * part * channels + c] - m;
      const float sum = total + count;
      m += distance * count / sum;
      squares += moments[(2 * part + 1) * channels + c] +
                 distance * distance * total * count / sum;
      total = sum;
    }
    Store(mean, c, m);
    Store(variance, c, squares / total);
  }

  const float* moments;
  V* mean;
  V* variance;
  int64_t rows;
  int64_t channels;
  int64_t parts;
};

// Element i of y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, with
// the residual and the relu, if there are any.
template <typename T, typename V>
struct BatchNorm {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const int64_t c = i % shape.channels;
    const int64_t entry = shape.EntryOf(i / shape.channels, c);
    const float scale = 1.0F / sqrtf(Load(variance, c) + epsilon);
    float value = (Load(x, i) - Load(mean, c)) * scale * Load(gamma, entry) +
                  Load(beta, entry);
    if (residual != nullptr) value += Load(residual, i);
    // NaN is kept
    Store(y, i, has_relu && value < 0.0F ? 0.0F : value);
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
  REPLICANT_DEVICE float Scale(int64_t c) const {
    return 1.0F / sqrtf(Load(variance, c) + epsilon);
  }
  // x^ of element c of a row.
  REPLICANT_DEVICE float Normalised(int64_t row, int64_t c) const {
    return (Load(x, row * shape.channels + c) - Load(mean, c)) * Scale(c);
  }
  // dy through the relu: 0 where the relu has cut off.
  REPLICANT_DEVICE float Gradient(int64_t row, int64_t c) const {
    const int64_t i = row * shape.channels + c;
    if (!has_relu) return Load(dy, i);
    const int64_t entry = shape.EntryOf(row, c);
    const float value = y != nullptr ? Load(y, i)
                                     : Normalised(row, c) * Load(gamma, entry) +
                                           Load(beta, entry);
    return value > 0.0F ? Load(dy, i) : 0.0F;
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
template <typename T, typename V>
struct BatchNormSums {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const NormRows& shape = in.shape;
    const int64_t c = i % shape.channels;
    const int64_t part = i / shape.channels % parts;
    const int64_t first = i / shape.channels / parts * shape.example_size;
    const int64_t end = first + shape.example_size * (part + 1) / parts;
    float dz_sum = 0.0F;
    float dot = 0.0F;
    for (int64_t row = first + shape.example_size * part / parts; row < end;
         ++row) {
      const float dz = in.Gradient(row, c);
      dz_sum += dz;
      dot += dz * in.Normalised(row, c);
    }
    sums[i] = dz_sum;
    dots[i] = dot;
  }

  BatchNormInputs<T, V> in;
  float* sums;
  float* dots;
  int64_t parts;
};

// Element (example, c): dbeta and dgamma, the sums over all parts. They are
// stored as f32 over those of part 0 as well, for BatchNormTotals.
template <typename V>
struct BatchNormVectors {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const int64_t first = i / channels * parts * channels + i % channels;
    float sum = 0.0F;
    float dot = 0.0F;
    for (int64_t part = 0; part < parts; ++part) {
      sum += sums[first + part * channels];
      dot += dots[first + part * channels];
    }
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

// Element i of dx = scale (d - sum(d) / n - x^ sum(d x^) / n), d = gamma dz.
template <typename T, typename V>
struct BatchNormInputGradient {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const int64_t c = i % in.shape.channels;
    const int64_t row = i / in.shape.channels;
    const auto count = static_cast<float>(in.shape.rows);
    const float d =
        in.Gradient(row, c) * Load(in.gamma, in.shape.EntryOf(row, c));
    Store(dx, i,
          in.Scale(c) *
              (d - totals[c] / count -
               in.Normalised(row, c) * totals[in.shape.channels + c] / count));
  }

  BatchNormInputs<T, V> in;
  const float* totals;
  T* dx;
};

// Element i of dz.
template <typename T, typename V>
struct BatchNormMask {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    Store(dz, i, in.Gradient(i / in.shape.channels, i % in.shape.channels));
  }

  BatchNormInputs<T, V> in;
  T* dz;
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
