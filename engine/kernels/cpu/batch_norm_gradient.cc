#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "engine/kernels/cpu/batch_norm.h"

namespace replicant::kernels::cpu {
namespace {

using std::size_t;

// The mask of the relu on dy.
enum class Mask {
  kNone,
  kFromX,  // where (x - mean) * factor + beta > 0, as in the forward pass
  kFromY,  // where y > 0; the masked dy is written as the residual's gradient
};

// The operands of one block of the gradient.
struct GradientBlock {
  const float* dy;
  const float* x;
  const float* y;
  const float* mean;
  const float* factor;
  const float* beta;
  int64_t rows, channels;
};

template <Mask kMask>
float Masked(const GradientBlock& b, int64_t at, int64_t c) {
  if constexpr (kMask == Mask::kFromX) {
    const float y = (b.x[at] - b.mean[c]) * b.factor[c] + b.beta[c];
    return y > 0.0f ? b.dy[at] : 0.0f;
  } else if constexpr (kMask == Mask::kFromY) {
    return b.y[at] > 0.0f ? b.dy[at] : 0.0f;
  } else {
    return b.dy[at];
  }
}

// Adds up dz and dz * (x - mean), where dz is the masked dy, and writes dz on
// request.
template <Mask kMask, bool kWrites>
void AddSums(const GradientBlock& b, float* dz, float* sum_dz,
             float* sum_dz_x) {
  for (int64_t row = 0; row < b.rows; ++row) {
    const int64_t begin = row * b.channels;
#pragma omp simd
    for (int64_t c = 0; c < b.channels; ++c) {
      const int64_t at = begin + c;
      const float d = Masked<kMask>(b, at, c);
      sum_dz[c] += d;
      sum_dz_x[c] += d * (b.x[at] - b.mean[c]);
      if constexpr (kWrites) dz[at] = d;
    }
  }
}

// dx = factor * dz - (x - mean) * slope - offset
template <Mask kMask>
void WriteGradient(const GradientBlock& b, const float* slope,
                   const float* offset, float* dx) {
  for (int64_t row = 0; row < b.rows; ++row) {
    const int64_t begin = row * b.channels;
#pragma omp simd
    for (int64_t c = 0; c < b.channels; ++c) {
      const int64_t at = begin + c;
      dx[at] = Masked<kMask>(b, at, c) * b.factor[c] -
               (b.x[at] - b.mean[c]) * slope[c] - offset[c];
    }
  }
}

// The inputs of a gradient, and its outputs dgamma, dbeta and perhaps dz.
struct GradientOperands {
  const std::byte* dy;
  const std::byte* x;
  const float* gamma;
  const float* beta;
  const float* mean;
  const float* variance;
  const std::byte* y;
  float* dgamma;
  float* dbeta;
  std::byte* dz;
};

// The first pass of a gradient: the sums of dz and of dz * (x - mean), and the
// per-channel values derived from them.
template <Mask kMask, bool kWrites>
class GradientSums {
 public:
  explicit GradientSums(const BatchNormShape& shape)
      : s_(shape),
        scratch_(BlockScratch(s_, kNumBlocks)),
        factor_(static_cast<size_t>(s_.groups * s_.channels)),
        block_sums_(2 * static_cast<size_t>(s_.num_threads * s_.channels)),
        totals_(2 * static_cast<size_t>((s_.num_parts() + s_.groups) *
                                        s_.channels)) {}

  void Run(const GradientOperands& operands) {
    o_ = operands;
    for (int64_t at = 0; at < s_.groups * s_.channels; ++at) {
      factor_[static_cast<size_t>(at)] = o_.gamma[at] * Scale(at % s_.channels);
    }
    std::ranges::fill(totals_, 0.0);
    s_.ForBlocks(/*is_reversed=*/false,
                 [this](const NormBlock& at) { AddBlock(at); });
  }

  // Writes dgamma and dbeta, and calls use(channel, 1 / sqrt(...), sum of
  // gamma dz, sum of gamma dz x^).
  template <typename Use>
  void Finish(const Use& use) const {
    for (int64_t c = 0; c < s_.channels; ++c) {
      const auto scale = static_cast<double>(Scale(c));
      double sum_d = 0.0;
      double sum_d_x_hat = 0.0;
      for (int64_t g = 0; g < s_.groups; ++g) {
        const int64_t at = g * s_.channels + c;
        const double gamma = static_cast<double>(o_.gamma[at]);
        const double dbeta = Total(g, c);
        const double dgamma = Total(g, s_.channels + c) * scale;
        o_.dgamma[at] = static_cast<float>(dgamma);
        o_.dbeta[at] = static_cast<float>(dbeta);
        sum_d += gamma * dbeta;
        sum_d_x_hat += gamma * dgamma;
      }
      use(c, scale, sum_d, sum_d_x_hat);
    }
  }

  // The block's operands as floats, valid until the thread's next block.
  GradientBlock BlockOf(const NormBlock& at) {
    const auto load = [&](const std::byte* data, size_t block) {
      return LoadRun(data, s_.dtype, at.row * s_.channels,
                     at.num_rows * s_.channels, scratch_.of(at.thread, block));
    };
    return {.dy = load(o_.dy, 0),
            .x = load(o_.x, 1),
            .y = kMask == Mask::kFromY ? load(o_.y, 2) : nullptr,
            .mean = o_.mean,
            .factor = factor_.data() + at.group * s_.channels,
            .beta = o_.beta + at.group * s_.channels,
            .rows = at.num_rows,
            .channels = s_.channels};
  }
  // Room for one more block of the thread.
  float* spare_block(int thread) { return scratch_.of(thread, 3); }

 private:
  static constexpr size_t kNumBlocks = 4;

  float Scale(int64_t channel) const {
    return 1.0f / std::sqrt(o_.variance[channel] + s_.epsilon);
  }

  // The block's sums in f32, added to its part's totals of the group.
  void AddBlock(const NormBlock& at) {
    float* sum_dz = block_sums_.data() + 2 * at.thread * s_.channels;
    float* sum_dz_x = sum_dz + s_.channels;
    std::fill_n(sum_dz, 2 * s_.channels, 0.0f);
    const int64_t first = at.row * s_.channels;
    float* dz = kWrites
                    ? PlaceOfRun(o_.dz, s_.dtype, first, spare_block(at.thread))
                    : nullptr;
    AddSums<kMask, kWrites>(BlockOf(at), dz, sum_dz, sum_dz_x);
    if constexpr (kWrites) {
      StoreRun(dz, o_.dz, s_.dtype, first, at.num_rows * s_.channels);
    }
    double* total = totals_.data() + 2 * (at.part + at.group) * s_.channels;
#pragma omp simd
    for (int64_t c = 0; c < 2 * s_.channels; ++c) {
      total[c] += static_cast<double>(sum_dz[c]);
    }
  }

  // Sums over all parts, in their order. Element k of a group: dz for k < C,
  // then dz * (x - mean).
  double Total(int64_t group, int64_t k) const {
    const int64_t first = group * s_.group_blocks;
    double sum = 0.0;
    for (int64_t part = s_.PartOf(first);
         part <= s_.PartOf(first + s_.group_blocks - 1); ++part) {
      sum += totals_[static_cast<size_t>(2 * (part + group) * s_.channels + k)];
    }
    return sum;
  }

  BatchNormShape s_;
  RunScratch scratch_;
  std::vector<float> factor_;
  std::vector<float> block_sums_;
  // the row of a part's group is the sum of their numbers: a part begins with
  // the last group of the one before, or a later one
  std::vector<double> totals_;
  GradientOperands o_{};
};

// inputs: dy, x, gamma, beta, mean, variance, perhaps y; outputs: dx, dgamma,
// dbeta, with y also the residual's gradient. Formulas as in the reference.
template <Mask kMask>
class BatchNormGradientKernel : public Kernel {
 public:
  explicit BatchNormGradientKernel(const CpuRequest& request)
      : s_(request, request.input(1), request.input(2).shape),
        dx_(BlockScratch(s_, 1)),
        sums_(s_),
        slope_(static_cast<size_t>(s_.channels)),
        offset_(static_cast<size_t>(s_.channels)) {}

  // dx is written after the sums are known; dy is not read after them if its
  // masked form is elsewhere
  bool CanShare(int input, int output) const override {
    if (output == 0) return input == 0 || input == 1 || input == 6;
    return output == 3 && (input == 0 || input == 6);
  }
  void Bind(const KernelBindings& bindings) override {
    operands_ = {.inputs = bindings.inputs, .outputs = bindings.outputs};
  }

  void Launch(Stream& /*stream*/) override {
    constexpr bool kHasY = kMask == Mask::kFromY;
    sums_.Run({.dy = operands_.inputs[0],
               .x = operands_.inputs[1],
               .gamma = operands_.input<float>(2),
               .beta = operands_.input<float>(3),
               .mean = operands_.input<float>(4),
               .variance = operands_.input<float>(5),
               .y = kHasY ? operands_.inputs[6] : nullptr,
               .dgamma = operands_.output<float>(1),
               .dbeta = operands_.output<float>(2),
               .dz = kHasY ? operands_.outputs[3] : nullptr});
    const auto count = static_cast<double>(s_.rows);
    sums_.Finish([&](int64_t c, double scale, double sum_d,
                     double sum_d_x_hat) {
      const auto channel = static_cast<size_t>(c);
      offset_[channel] = static_cast<float>(scale * sum_d / count);
      slope_[channel] = static_cast<float>(scale * scale * sum_d_x_hat / count);
    });
    s_.ForBlocks(/*is_reversed=*/true, [&](const NormBlock& at) {
      const int64_t first = at.row * s_.channels;
      const int64_t size = at.num_rows * s_.channels;
      GradientBlock block = sums_.BlockOf(at);
      float* dx = PlaceOfRun(operands_.outputs[0], s_.dtype, first,
                             dx_.of(at.thread, 0));
      if constexpr (kHasY) {
        block.dy = LoadRun(operands_.outputs[3], s_.dtype, first, size,
                           sums_.spare_block(at.thread));
        WriteGradient<Mask::kNone>(block, slope_.data(), offset_.data(), dx);
      } else {
        WriteGradient<kMask>(block, slope_.data(), offset_.data(), dx);
      }
      StoreRun(dx, operands_.outputs[0], s_.dtype, first, size);
    });
  }

 private:
  BatchNormShape s_;
  RunScratch dx_;
  GradientSums<kMask, kMask == Mask::kFromY> sums_;
  std::vector<float> slope_, offset_;
  Operands operands_;
};

// inputs: dy, x, gamma, beta, moments, perhaps y; outputs: dgamma, dbeta,
// dmoments, with a relu also dz. Formulas as in the reference.
template <Mask kMask>
class BatchNormApplyGradientKernel : public Kernel {
 public:
  explicit BatchNormApplyGradientKernel(const CpuRequest& request)
      : s_(request, request.input(1), request.input(2).shape), sums_(s_) {}

  // dz may overwrite dy or y element by element
  bool CanShare(int input, int output) const override {
    return output == 3 && (input == 0 || input == 5);
  }
  void Bind(const KernelBindings& bindings) override {
    operands_ = {.inputs = bindings.inputs, .outputs = bindings.outputs};
  }

  void Launch(Stream& /*stream*/) override {
    const float* moments = operands_.input<float>(4);
    sums_.Run({.dy = operands_.inputs[0],
               .x = operands_.inputs[1],
               .gamma = operands_.input<float>(2),
               .beta = operands_.input<float>(3),
               .mean = moments,
               .variance = moments + s_.channels,
               .y = kMask == Mask::kFromY ? operands_.inputs[5] : nullptr,
               .dgamma = operands_.output<float>(0),
               .dbeta = operands_.output<float>(1),
               .dz = kHasMask ? operands_.outputs[3] : nullptr});
    auto* dmoments = operands_.output<float>(2);
    sums_.Finish(
        [&](int64_t c, double scale, double sum_d, double sum_d_x_hat) {
          dmoments[c] = static_cast<float>(-scale * sum_d);
          dmoments[s_.channels + c] =
              static_cast<float>(-0.5 * scale * scale * sum_d_x_hat);
        });
  }

 private:
  static constexpr bool kHasMask = kMask != Mask::kNone;

  BatchNormShape s_;
  GradientSums<kMask, kHasMask> sums_;
  Operands operands_;
};

template <template <Mask> typename GradientKernel>
std::unique_ptr<Kernel> MakeGradient(const CpuRequest& request, bool has_y) {
  if (!request.node.attributes.Bool("relu")) {
    return std::make_unique<GradientKernel<Mask::kNone>>(request);
  }
  if (has_y) return std::make_unique<GradientKernel<Mask::kFromY>>(request);
  return std::make_unique<GradientKernel<Mask::kFromX>>(request);
}

}  // namespace

std::unique_ptr<Kernel> MakeBatchNormGradient(const CpuRequest& request) {
  return MakeGradient<BatchNormGradientKernel>(request,
                                               request.node.inputs.size() > 6);
}

std::unique_ptr<Kernel> MakeBatchNormApplyGradient(const CpuRequest& request) {
  return MakeGradient<BatchNormApplyGradientKernel>(
      request, request.node.inputs.size() > 5);
}

}  // namespace replicant::kernels::cpu
