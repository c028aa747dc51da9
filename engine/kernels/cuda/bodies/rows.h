#pragma once

#include "engine/kernels/cuda/bodies/device.h"

// Bodies that compute one row with one warp: distributions, losses, layer norm.
namespace replicant::kernels::cuda {

// ln sum_k e^x[k] = largest + log_sum, kept apart because a large maximum would
// absorb the digits of the sum.
struct LogTotal {
  template <typename T>
  REPLICANT_DEVICE LogTotal(const Warp& warp, const T* x, int64_t n)
      : largest(warp.Max(n, [&](int64_t k) { return Load(x, k); })),
        log_sum(logf(warp.Sum(
            n, [&](int64_t k) { return expf(Load(x, k) - largest); }))) {}

  float largest;
  float log_sum;
};

// x, y [rows, n]
template <typename T>
struct Softmax {
  REPLICANT_DEVICE void operator()(const Warp& warp, int64_t row) const {
    const T* in = x + row * n;
    T* out = y + row * n;
    const LogTotal total(warp, in, n);
    warp.ForEach(n, [&](int64_t k) {
      const float value = Load(in, k) - total.largest - total.log_sum;
      Store(out, k, is_log ? value : expf(value));
    });
  }

  const T* x;
  T* y;
  int64_t n;
  bool is_log;
};

// logits, target [rows, n] -> loss [rows]
template <typename T>
struct CrossEntropy {
  REPLICANT_DEVICE void operator()(const Warp& warp, int64_t row) const {
    const T* in = logits + row * n;
    const LogTotal total(warp, in, n);
    const float value = warp.Sum(n, [&](int64_t k) {
      return -Load(target, row * n + k) *
             (Load(in, k) - total.largest - total.log_sum);
    });
    if (warp.is_first_lane()) Store(loss, row, value);
  }

  const T* logits;
  const T* target;
  T* loss;
  int64_t n;
};

// CategoricalProjection of graph/ops/losses.h: probabilities, y [rows, n];
// reward, discount [rows]. Positions are computed in units of the atoms'
// distance, so that atom k is k.
template <typename T>
struct Projection {
  REPLICANT_DEVICE void operator()(const Warp& warp, int64_t row) const {
    const float r = Load(reward, row);
    const float d = Load(discount, row);
    const float last = static_cast<float>(n - 1);
    warp.ForEach(n, [&](int64_t k) {
      float mass = 0.0F;
      for (int64_t j = 0; j < n; ++j) {
        const float z = v_min + static_cast<float>(j) * gap;
        float position = (r + d * z - v_min) / gap;
        position = position < 0.0F ? 0.0F : (position > last ? last : position);
        const float share = 1.0F - fabsf(position - static_cast<float>(k));
        // NaN is kept
        mass +=
            Load(probabilities, row * n + j) * (share < 0.0F ? 0.0F : share);
      }
      Store(y, row * n + k, mass);
    });
  }

  const T* probabilities;
  const T* reward;
  const T* discount;
  T* y;
  int64_t n;
  float v_min;
  float gap;
};

// LayerNorm of graph/ops/norm.h: x, y [rows, n]; gamma, beta [n]; mean, scale
// [rows]. Two passes, because a difference of squares loses all digits if the
// mean is large against the standard deviation.
template <typename T, typename V>
struct LayerNorm {
  REPLICANT_DEVICE void operator()(const Warp& warp, int64_t row) const {
    const T* in = x + row * n;
    const auto count = static_cast<float>(n);
    const float m = warp.Sum(n, [&](int64_t k) { return Load(in, k); }) / count;
    const float variance = warp.Sum(n, [&](int64_t k) {
      const float d = Load(in, k) - m;
      return d * d;
    }) / count;
    const float s = 1.0F / sqrtf(variance + epsilon);
    warp.ForEach(n, [&](int64_t k) {
      Store(y, row * n + k,
            (Load(in, k) - m) * s * Load(gamma, k) + Load(beta, k));
    });
    if (warp.is_first_lane()) {
      Store(mean, row, m);
      Store(scale, row, s);
    }
  }

  const T* x;
  const V* gamma;
  const V* beta;
  T* y;
  V* mean;
  V* scale;
  int64_t n;
  float epsilon;
};

// With x^ = (x - mean) * scale and d = dy * gamma, over a row of n:
//   dx = scale * (d - sum(d) / n - x^ * sum(d x^) / n)
template <typename T, typename V>
struct LayerNormInputGradient {
  REPLICANT_DEVICE void operator()(const Warp& warp, int64_t row) const {
    const float m = Load(mean, row);
    const float s = Load(scale, row);
    const auto count = static_cast<float>(n);
    const auto normalised = [&](int64_t k) {
      return (Load(x, row * n + k) - m) * s;
    };
    const auto scaled = [&](int64_t k) {
      return Load(dy, row * n + k) * Load(gamma, k);
    };
    const float sum = warp.Sum(n, scaled);
    const float dot =
        warp.Sum(n, [&](int64_t k) { return scaled(k) * normalised(k); });
    warp.ForEach(n, [&](int64_t k) {
      Store(dx, row * n + k,
            s * (scaled(k) - sum / count - normalised(k) * dot / count));
    });
  }

  const T* dy;
  const T* x;
  const V* gamma;
  const V* mean;
  const V* scale;
  T* dx;
  int64_t n;
};

// Sums over a part of the rows: element (part, k) of dgamma = sum(dy x^) and
// dbeta = sum(dy), [parts, n].
template <typename T, typename V>
struct LayerNormVectorGradient {
  REPLICANT_DEVICE void operator()(int64_t i) const {
    const int64_t k = i % n;
    const int64_t part = i / n;
    float gamma_sum = 0.0F;
    float beta_sum = 0.0F;
    const int64_t end = rows * (part + 1) / parts;
    for (int64_t row = rows * part / parts; row < end; ++row) {
      const float d = Load(dy, row * n + k);
      beta_sum += d;
      gamma_sum +=
          d * (Load(x, row * n + k) - Load(mean, row)) * Load(scale, row);
    }
    dgamma[i] = gamma_sum;
    dbeta[i] = beta_sum;
  }

  const T* dy;
  const T* x;
  const V* mean;
  const V* scale;
  float* dgamma;
  float* dbeta;
  int64_t rows;
  int64_t n;
  int64_t parts;
};

}  // namespace replicant::kernels::cuda
