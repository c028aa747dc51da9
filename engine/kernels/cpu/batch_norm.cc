#include "engine/kernels/cpu/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "engine/kernels/cpu/tile_program.h"

namespace replicant::kernels::cpu {
namespace {

using std::size_t;

// Mean and sum of squared deviations per channel, of rows that come block by
// block. Each block takes two passes in f32, both in the cache; blocks are
// combined in double (Chan et al. 1979, eq. 2.1).
class Moments {
 public:
  explicit Moments(int64_t channels)
      : channels_(channels),
        block_mean_(static_cast<size_t>(channels)),
        block_squares_(static_cast<size_t>(channels)),
        mean_(static_cast<size_t>(channels)),
        squares_(static_cast<size_t>(channels)) {}

  void Clear() {
    count_ = 0.0;
    std::ranges::fill(mean_, 0.0);
    std::ranges::fill(squares_, 0.0);
  }

  void AddBlock(const float* x, int64_t rows) {
    float* mean = block_mean_.data();
    float* squares = block_squares_.data();
    std::fill_n(mean, channels_, 0.0f);
    std::fill_n(squares, channels_, 0.0f);
    for (int64_t row = 0; row < rows; ++row) {
      const float* xr = x + row * channels_;
#pragma omp simd
      for (int64_t c = 0; c < channels_; ++c) mean[c] += xr[c];
    }
    const auto factor = 1.0f / static_cast<float>(rows);
#pragma omp simd
    for (int64_t c = 0; c < channels_; ++c) mean[c] *= factor;
    for (int64_t row = 0; row < rows; ++row) {
      const float* xr = x + row * channels_;
#pragma omp simd
      for (int64_t c = 0; c < channels_; ++c) {
        squares[c] += (xr[c] - mean[c]) * (xr[c] - mean[c]);
      }
    }
    Merge(mean, squares, static_cast<double>(rows));
  }
  void Add(const Moments& other) {
    if (other.count_ > 0.0) {
      Merge(other.mean_.data(), other.squares_.data(), other.count_);
    }
  }

  float mean(int64_t channel) const {
    return static_cast<float>(mean_[static_cast<size_t>(channel)]);
  }
  // Biased variance.
  float variance(int64_t channel) const {
    return static_cast<float>(squares_[static_cast<size_t>(channel)] / count_);
  }

 private:
  template <typename T>
  void Merge(const T* mean, const T* squares, double count) {
    const double total = count_ + count;
    const double share = count / total;
    const double spread = count_ * count / total;
    double* own_mean = mean_.data();
    double* own_squares = squares_.data();
#pragma omp simd
    for (int64_t c = 0; c < channels_; ++c) {
      const double distance = static_cast<double>(mean[c]) - own_mean[c];
      own_mean[c] += share * distance;
      own_squares[c] +=
          static_cast<double>(squares[c]) + spread * distance * distance;
    }
    count_ = total;
  }

  int64_t channels_;
  double count_ = 0.0;
  std::vector<float> block_mean_, block_squares_;
  std::vector<double> mean_, squares_;
};

// Rows of one group, and the statistics that normalise them.
struct ForwardBlock {
  const float* x;
  const float* residual;
  const float* mean;
  const float* factor;
  const float* beta;
  int64_t rows, channels;
};

// y as a function of x: (x - mean[c]) * factor[g, c] + beta[g, c].
template <bool kHasResidual, bool kHasRelu>
void Normalise(const ForwardBlock& b, float* y) {
  for (int64_t row = 0; row < b.rows; ++row) {
    const float* xr = b.x + row * b.channels;
    const float* rr = kHasResidual ? b.residual + row * b.channels : nullptr;
    float* yr = y + row * b.channels;
#pragma omp simd
    for (int64_t c = 0; c < b.channels; ++c) {
      float value = (xr[c] - b.mean[c]) * b.factor[c] + b.beta[c];
      if constexpr (kHasResidual) value += rr[c];
      // NaN is kept
      if constexpr (kHasRelu) value = value < 0.0f ? 0.0f : value;
      yr[c] = value;
    }
  }
}

auto ChooseNormalise(bool has_residual, bool has_relu) {
  if (has_residual) {
    return has_relu ? &Normalise<true, true> : &Normalise<true, false>;
  }
  return has_relu ? &Normalise<false, true> : &Normalise<false, false>;
}

// The moments of all rows: the first pass of a batch norm.
class MomentsPass {
 public:
  explicit MomentsPass(const BatchNormShape& shape)
      : moments_(static_cast<size_t>(shape.num_parts()),
                 Moments(shape.channels)) {}

  // Writes mean and biased variance, [C]; uses block 0 of each thread.
  void Run(const BatchNormShape& s, const std::byte* x, RunScratch* scratch,
           float* mean, float* variance) {
    for (Moments& moments : moments_) moments.Clear();
    s.ForBlocks(/*is_reversed=*/false, [&](const NormBlock& block) {
      moments_[static_cast<size_t>(block.part)].AddBlock(
          LoadRun(x, s.dtype, block.row * s.channels,
                  block.num_rows * s.channels, scratch->of(block.thread, 0)),
          block.num_rows);
    });
    for (size_t i = 1; i < moments_.size(); ++i) moments_[0].Add(moments_[i]);
    for (int64_t c = 0; c < s.channels; ++c) {
      mean[c] = moments_[0].mean(c);
      variance[c] = moments_[0].variance(c);
    }
  }

 private:
  // by part
  std::vector<Moments> moments_;
};

// BatchMoments. inputs: x; outputs: mean and variance, [2, C]
class BatchMomentsKernel : public Kernel {
 public:
  explicit BatchMomentsKernel(const CpuRequest& request)
      : s_(request, request.input(0), Shape({})),
        scratch_(BlockScratch(s_, 1)),
        pass_(s_) {}

  void Bind(const KernelBindings& bindings) override {
    operands_ = {.inputs = bindings.inputs, .outputs = bindings.outputs};
  }
  void Launch(Stream& /*stream*/) override {
    auto* moments = operands_.output<float>();
    pass_.Run(s_, operands_.inputs[0], &scratch_, moments,
              moments + s_.channels);
  }

 private:
  BatchNormShape s_;
  RunScratch scratch_;
  MomentsPass pass_;
  Operands operands_;
};

// BatchNorm. inputs: x, gamma, beta, perhaps a residual; outputs: y, mean,
// variance
// BatchNormApply. inputs: x, gamma, beta, moments, perhaps a residual; outputs:
// y
class BatchNormKernel : public Kernel {
 public:
  explicit BatchNormKernel(const CpuRequest& request)
      : s_(request, request.input(0), request.input(1).shape),
        scratch_(BlockScratch(s_, 3)),
        has_moments_(request.node.op->name == "BatchNormApply"),
        residual_(has_moments_ ? 4 : 3),
        has_residual_(request.node.inputs.size() > residual_),
        normalise_(ChooseNormalise(has_residual_, s_.has_relu)),
        pass_(s_),
        factor_(static_cast<size_t>(s_.groups * s_.channels)) {
    if (request.node.attributes.Has("activation")) {
      activation_ = TileProgram(request.node.attributes.Program("activation"));
    }
    workspace_.resize(static_cast<size_t>(s_.num_threads) *
                      activation_.workspace_size());
  }

  // y may overwrite x or the residual element by element, once the statistics
  // are known
  bool CanShare(int input, int output) const override {
    return output == 0 && (input == 0 || input == static_cast<int>(residual_));
  }
  void Bind(const KernelBindings& bindings) override {
    operands_ = {.inputs = bindings.inputs, .outputs = bindings.outputs};
  }

  void Launch(Stream& /*stream*/) override {
    const float* mean = nullptr;
    if (has_moments_) {
      mean = operands_.input<float>(3);
      FindFactors(mean + s_.channels);
    } else {
      mean = operands_.output<float>(1);
      auto* variance = operands_.output<float>(2);
      pass_.Run(s_, operands_.inputs[0], &scratch_, operands_.output<float>(1),
                variance);
      FindFactors(variance);
    }
    s_.ForBlocks(/*is_reversed=*/true, [&](const NormBlock& block) {
      const auto [thread, part, group, row, rows] = block;
      const int64_t at = row * s_.channels;
      float* y = PlaceOfRun(operands_.outputs[0], s_.dtype, at,
                            scratch_.of(thread, 2));
      normalise_(
          {.x = Block(thread, 0, row, rows),
           .residual =
               has_residual_ ? Block(thread, residual_, row, rows) : nullptr,
           .mean = mean,
           .factor = factor_.data() + group * s_.channels,
           .beta = operands_.input<float>(2) + group * s_.channels,
           .rows = rows,
           .channels = s_.channels},
          y);
      if (!activation_.is_empty()) {
        activation_.RunInPlace(
            y, rows * s_.channels,
            workspace_.data() +
                static_cast<size_t>(thread) * activation_.workspace_size());
      }
      StoreRun(y, operands_.outputs[0], s_.dtype, at, rows * s_.channels);
    });
  }

 private:
  // Rows of x or of the residual.
  const float* Block(int thread, size_t input, int64_t row, int64_t rows) {
    return LoadRun(operands_.inputs[input], s_.dtype, row * s_.channels,
                   rows * s_.channels, scratch_.of(thread, input == 0 ? 0 : 1));
  }

  void FindFactors(const float* variance) {
    for (int64_t c = 0; c < s_.channels; ++c) {
      const float scale = 1.0f / std::sqrt(variance[c] + s_.epsilon);
      for (int64_t g = 0; g < s_.groups; ++g) {
        const int64_t at = g * s_.channels + c;
        factor_[static_cast<size_t>(at)] =
            operands_.input<float>(1)[at] * scale;
      }
    }
  }

  BatchNormShape s_;
  RunScratch scratch_;
  bool has_moments_;
  // number of the residual's input, if there is one
  size_t residual_;
  bool has_residual_;
  decltype(ChooseNormalise(false, false)) normalise_;
  TileProgram activation_;
  MomentsPass pass_;
  std::vector<float> factor_;
  std::vector<float> workspace_;
  Operands operands_;
};

std::unique_ptr<Kernel> MakeBatchMoments(const CpuRequest& request) {
  return std::make_unique<BatchMomentsKernel>(request);
}

std::unique_ptr<Kernel> MakeBatchNorm(const CpuRequest& request) {
  return std::make_unique<BatchNormKernel>(request);
}

}  // namespace

void AddBatchNormKernels(CpuKernelTable& table) {
  table["BatchNorm"] = {.make = &MakeBatchNorm, .why_not = &WhyNotNorm};
  table["BatchNormGradient"] = {.make = &MakeBatchNormGradient,
                                .why_not = &WhyNotNorm};
  table["BatchMoments"] = {.make = &MakeBatchMoments, .why_not = &WhyNotNorm};
  table["BatchNormApply"] = {.make = &MakeBatchNorm, .why_not = &WhyNotNorm};
  table["BatchNormApplyGradient"] = {.make = &MakeBatchNormApplyGradient,
                                     .why_not = &WhyNotNorm};
  // few elements: as in common/
  table["CombineMoments"] = {};
  table["CombineMomentsGradient"] = {};
}

}  // namespace replicant::kernels::cpu
