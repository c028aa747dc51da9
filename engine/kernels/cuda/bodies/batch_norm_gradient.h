#pragma once

#include "engine/kernels/cuda/bodies/batch_norm.h"

// Gradients of batch norm, over the same rows of channels. dz is the gradient
// before the relu, x^ = (x - mean) / sqrt(variance + epsilon).
namespace replicant::kernels::cuda {

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
          has_relu(in.has_relu) {}

    // x^
    REPLICANT_DEVICE float Normalised(int k, int lane) const {
      return p.Normalised(x.rows[k].Get(lane), lane);
    }
    // dy through the relu: 0 where the relu has cut off.
    REPLICANT_DEVICE float Gradient(int k, int lane) const {
      const float d = dy.rows[k].Get(lane);
      if (!has_relu) return d;
      return p.Apply(x.rows[k].Get(lane), lane) > 0.0F ? d : 0.0F;
    }

    const NormParameters<V, kLanes>& p;
    const NormBlock<T, kLanes, kRows> dy, x;
    const bool has_relu;
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
  NormRows shape;
  float epsilon;
  bool has_relu;  // behind the norm alone: its mask follows from x
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

// BatchNormSums of a norm with a relu, and a slice of dz, which is read in
// place of dy from then on. The relu's mask comes from `mask`, from y, or from
// x where both are null.
template <typename T, typename V, int kLanes>
struct BatchNormMaskedSums {
  // For nothing that takes part in the work.
  struct Alone {
    REPLICANT_DEVICE void Load(int64_t /*row*/, int /*size*/) {}
    REPLICANT_DEVICE void Add(int /*k*/, int /*lane*/, float /*dz*/) {}
  };

  REPLICANT_DEVICE void operator()(int64_t i) const {
    Alone alone;
    Run<4>(i, alone);
  }
  // Calls other.Load(row, size) for each block of up to kRows rows, and
  // other.Add(k, lane, dz) for each element of its row k.
  template <int kRows, typename Other>
  REPLICANT_DEVICE void Run(int64_t i, Other& other) const {
    using Block = NormBlock<T, kLanes, kRows>;
    const int64_t channels = in.shape.channels;
    const NormSlice slice = in.shape.template SliceOf<kLanes>(i);
    const auto p = in.template ParametersOf<kLanes>(slice);
    float sum[kLanes] = {};
    float dot[kLanes] = {};
    for (int64_t row = slice.begin; row < slice.end; row += kRows) {
      const int size = BlockSize<kRows>(slice.end - row);
      const Block x(in.x, row, size, channels, slice.channel);
      const Block dy(in.dy, row, size, channels, slice.channel);
      Block second, ys;
      second.ReadIfAny(second_dy, row, size, channels, slice.channel);
      ys.ReadIfAny(y, row, size, channels, slice.channel);
      NormBlock<uint8_t, 1, kRows> bits;
      bits.ReadIfAny(mask, row, size, channels / kLanes,
                     slice.channel / kLanes);
      other.Load(row, size);
      REPLICANT_UNROLL
      for (int k = 0; k < kRows; ++k) {
        if (k >= size) break;
        Pack<T, kLanes> gradient = dy.rows[k];
        REPLICANT_UNROLL
        for (int lane = 0; lane < kLanes; ++lane) {
          const float own = x.rows[k].Get(lane);
          if (second_dy != nullptr) {
            // rounded as the sum in memory would be
            gradient.Set(lane, gradient.Get(lane) + second.rows[k].Get(lane));
          }
          bool passes;
          if (mask != nullptr) {
            passes = (bits.rows[k].values[0] >> lane & 1) != 0;
          } else {
            const float value =
                y != nullptr ? ys.rows[k].Get(lane) : p.Apply(own, lane);
            passes = value > 0.0F;
          }
          if (!passes) gradient.Set(lane, 0.0F);
          const float d = gradient.Get(lane);
          sum[lane] += d;
          dot[lane] += d * p.Normalised(own, lane);
          other.Add(k, lane, d);
        }
        gradient.StoreAt(dz, (row + k) * channels + slice.channel);
      }
    }
    REPLICANT_UNROLL
    for (int lane = 0; lane < kLanes; ++lane) {
      sums[i * kLanes + lane] = sum[lane];
      dots[i * kLanes + lane] = dot[lane];
    }
  }

  BatchNormInputs<T, V> in;
  const T* second_dy;   // the other part of dy; null: none
  const T* y;           // null: none
  const uint8_t* mask;  // of BatchNorm, with kMaxLanes only; null: none
  T* dz;
  float* sums;
  float* dots;
};

// BatchNormMaskedSums, and the sums for the residual's norm, whose dy is dz and
// whose rows all share gamma. The sums of dz are stored twice.
template <typename T, typename V, int kLanes>
struct BatchNormPairSums {
  static constexpr int kRows = 2;

  struct Residual {
    REPLICANT_DEVICE Residual(const BatchNormInputs<T, V>& inputs,
                              const NormSlice& own_slice)
        : in(inputs),
          slice(own_slice),
          p(inputs.template ParametersOf<kLanes>(own_slice)) {}
    REPLICANT_DEVICE void Load(int64_t row, int size) {
      x.Read(in.x, row, size, in.shape.channels, slice.channel);
    }
    REPLICANT_DEVICE void Add(int k, int lane, float dz) {
      dot[lane] += dz * p.Normalised(x.rows[k].Get(lane), lane);
    }

    const BatchNormInputs<T, V>& in;
    const NormSlice slice;
    const NormParameters<V, kLanes> p;
    NormBlock<T, kLanes, kRows> x;
    float dot[kLanes] = {};
  };

  REPLICANT_DEVICE void operator()(int64_t i) const {
    Residual other(residual, norm.in.shape.template SliceOf<kLanes>(i));
    norm.template Run<kRows>(i, other);
    REPLICANT_UNROLL
    for (int lane = 0; lane < kLanes; ++lane) {
      sums[i * kLanes + lane] = norm.sums[i * kLanes + lane];
      dots[i * kLanes + lane] = other.dot[lane];
    }
  }

  BatchNormMaskedSums<T, V, kLanes> norm;
  BatchNormInputs<T, V> residual;  // without dy
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

// A slice's dx = scale (d - sum(d) / n - x^ sum(d x^) / n), d = gamma dz.
template <typename V, int kLanes>
struct NormInputGradient {
  template <typename T>
  REPLICANT_DEVICE NormInputGradient(const BatchNormInputs<T, V>& in,
                                     const float* totals,
                                     const NormSlice& slice)
      : p(in.template ParametersOf<kLanes>(slice)) {
    const auto count = static_cast<float>(in.shape.rows);
    REPLICANT_UNROLL
    for (int lane = 0; lane < kLanes; ++lane) {
      const int64_t c = slice.channel + lane;
      sums[lane] = totals[c] / count;
      dots[lane] = totals[in.shape.channels + c] / count;
    }
  }
  REPLICANT_DEVICE float At(float dz, float x, int lane) const {
    return p.scales[lane] * (dz * p.gammas[lane] - sums[lane] -
                             p.Normalised(x, lane) * dots[lane]);
  }

  NormParameters<V, kLanes> p;
  float sums[kLanes];
  float dots[kLanes];
};

template <typename T, typename V, int kLanes>
struct BatchNormInputGradient {
  static constexpr int kRows = 2;

  REPLICANT_DEVICE void operator()(int64_t i) const {
    const NormSlice slice = in.shape.template SliceOf<kLanes>(i);
    const NormInputGradient<V, kLanes> gradient(in, totals, slice);
    in.template ForRows<kRows>(
        slice, gradient.p, [&](const auto& block, int k, int64_t row) {
          Pack<T, kLanes> result;
          REPLICANT_UNROLL
          for (int lane = 0; lane < kLanes; ++lane) {
            result.Set(lane, gradient.At(block.Gradient(k, lane),
                                         block.x.rows[k].Get(lane), lane));
          }
          result.StoreAt(dx, row * in.shape.channels + slice.channel);
        });
  }

  BatchNormInputs<T, V> in;
  const float* totals;
  T* dx;
};

// A slice of dx of a norm and of its residual's norm, from dz.
template <typename T, typename V, int kLanes>
struct BatchNormPairInputGradient {
  static constexpr int kRows = 2;

  REPLICANT_DEVICE void operator()(int64_t i) const {
    using Block = NormBlock<T, kLanes, kRows>;
    const NormRows& shape = norm.in.shape;
    const NormSlice slice = shape.template SliceOf<kLanes>(i);
    const NormInputGradient<V, kLanes> own(norm.in, norm.totals, slice);
    const NormInputGradient<V, kLanes> other(residual.in, residual.totals,
                                             slice);
    for (int64_t row = slice.begin; row < slice.end; row += kRows) {
      const int size = BlockSize<kRows>(slice.end - row);
      const Block dz(norm.in.dy, row, size, shape.channels, slice.channel);
      const Block x(norm.in.x, row, size, shape.channels, slice.channel);
      const Block r(residual.in.x, row, size, shape.channels, slice.channel);
      REPLICANT_UNROLL
      for (int k = 0; k < kRows; ++k) {
        if (k >= size) break;
        Pack<T, kLanes> to_x, to_r;
        REPLICANT_UNROLL
        for (int lane = 0; lane < kLanes; ++lane) {
          const float d = dz.rows[k].Get(lane);
          to_x.Set(lane, own.At(d, x.rows[k].Get(lane), lane));
          to_r.Set(lane, other.At(d, r.rows[k].Get(lane), lane));
        }
        const int64_t at = (row + k) * shape.channels + slice.channel;
        to_x.StoreAt(norm.dx, at);
        to_r.StoreAt(residual.dx, at);
      }
    }
  }

  BatchNormInputGradient<T, V, kLanes> norm, residual;
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

}  // namespace replicant::kernels::cuda
