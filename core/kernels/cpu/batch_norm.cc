#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/stored.h"
#include "core/kernels/cpu/tile_program.h"

// Batch norm with the relu and the residual that follow it. What it costs is
// moving memory, so that each tensor is read as seldom as it can be: once for
// the statistics or sums, once for the result.
namespace replicant::kernels::cpu {
namespace {

using std::size_t;

// x as examples of rows of channels, walked in blocks of rows that stay in the
// cache. gamma and beta have one row for all examples, or one for each.
struct BatchNormShape {
  BatchNormShape(const CpuRequest& request, const graph::TensorType& x,
                 const Shape& gamma)
      : dtype(x.dtype),
        channels(x.shape[x.shape.rank() - 1]),
        rows(x.shape.num_elements() / channels),
        groups(gamma.rank() == 2 ? gamma[0] : 1),
        group_rows(rows / groups),
        block_rows(std::clamp<int64_t>(kBlockSize / channels, 16, 128)),
        group_blocks((group_rows + block_rows - 1) / block_rows),
        epsilon(
            HasAttributes(request)
                ? static_cast<float>(request.node.attributes.Float("epsilon"))
                : 0.0f),
        has_relu(HasAttributes(request) &&
                 request.node.attributes.Bool("relu")),
        num_threads(
            ThreadsFor(request.num_threads, 4 * x.shape.num_elements())) {}

  // Elements of a block, unless it must have more for its fewest rows.
  static constexpr int64_t kBlockSize = 8192;

  // Calls run(thread, group, first row, number of rows) for all blocks; those
  // of a thread in order, or the last first: what a pass has read last may
  // still be in the cache when the next pass begins.
  template <typename Run>
  void ForBlocks(bool is_reversed, const Run& run) const {
    ParallelFor(num_threads, groups * group_blocks,
                [&](int thread, int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const int64_t block = is_reversed ? begin + end - 1 - i : i;
                    const int64_t group = block / group_blocks;
                    const int64_t first = block % group_blocks * block_rows;
                    run(thread, group, group * group_rows + first,
                        std::min(block_rows, group_rows - first));
                  }
                });
  }

  // moments are there without what normalises by them
  static bool HasAttributes(const CpuRequest& request) {
    return request.node.attributes.Has("epsilon");
  }

  DType dtype;
  int64_t channels, rows, groups, group_rows, block_rows, group_blocks;
  float epsilon;
  bool has_relu;
  int num_threads;
};

// Blocks of what is not stored as f32, as floats: some for each thread.
class BlockScratch {
 public:
  BlockScratch(const BatchNormShape& s, size_t num_blocks)
      : block_size_(s.dtype == DType::kF32
                        ? 0
                        : static_cast<size_t>(s.block_rows * s.channels)),
        num_blocks_(num_blocks),
        floats_(static_cast<size_t>(s.num_threads) * num_blocks * block_size_) {
  }

  float* of(int thread, size_t block) {
    return floats_.data() +
           (static_cast<size_t>(thread) * num_blocks_ + block) * block_size_;
  }

 private:
  size_t block_size_, num_blocks_;
  std::vector<float> floats_;
};

// Mean and squared distance from it, per channel, of rows that come block by
// block: each block in two passes through the cache in f32, the blocks put
// together in double (Chan et al. 1979, eq. 2.1).
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
  // Biased.
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

// Rows of one group, and what normalises them.
struct ForwardBlock {
  const float* x;
  const float* residual;
  const float* mean;
  const float* factor;
  const float* beta;
  int64_t rows, channels;
};

// What y is of x: (x - mean[c]) * factor[g, c] + beta[g, c].
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
      // not a number stays
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
      : moments_(static_cast<size_t>(shape.num_threads),
                 Moments(shape.channels)) {}

  // Writes mean and biased variance, [C]; uses block 0 of each thread.
  void Run(const BatchNormShape& s, const std::byte* x, BlockScratch* scratch,
           float* mean, float* variance) {
    for (Moments& moments : moments_) moments.Clear();
    s.ForBlocks(/*is_reversed=*/false,
                [&](int thread, int64_t /*group*/, int64_t row, int64_t rows) {
                  moments_[static_cast<size_t>(thread)].AddBlock(
                      LoadRun(x, s.dtype, row * s.channels, rows * s.channels,
                              scratch->of(thread, 0)),
                      rows);
                });
    for (size_t i = 1; i < moments_.size(); ++i) moments_[0].Add(moments_[i]);
    for (int64_t c = 0; c < s.channels; ++c) {
      mean[c] = moments_[0].mean(c);
      variance[c] = moments_[0].variance(c);
    }
  }

 private:
  // by thread
  std::vector<Moments> moments_;
};

// BatchMoments. inputs: x; outputs: mean and variance, [2, C]
class BatchMomentsKernel : public Kernel {
 public:
  explicit BatchMomentsKernel(const CpuRequest& request)
      : s_(request, request.input(0), Shape({})), scratch_(s_, 1), pass_(s_) {}

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
  BlockScratch scratch_;
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
        scratch_(s_, 3),
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

  // y may take the place of x or the residual: element by element, once the
  // statistics are there
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
    s_.ForBlocks(/*is_reversed=*/true, [&](int thread, int64_t group,
                                           int64_t row, int64_t rows) {
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
  BlockScratch scratch_;
  bool has_moments_;
  // which input it is, if there is one
  size_t residual_;
  bool has_residual_;
  decltype(ChooseNormalise(false, false)) normalise_;
  TileProgram activation_;
  MomentsPass pass_;
  std::vector<float> factor_;
  std::vector<float> workspace_;
  Operands operands_;
};

// How dy is cut by the relu.
enum class Mask {
  kNone,
  kFromX,  // where (x - mean) * factor + beta > 0, as the forward pass had it
  kFromY,  // where y > 0; the cut dy is written, being the residual's gradient
};

// What one block of the gradient needs.
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

// Adds up dz and dz * (x - mean), dz being the masked dy, and writes dz where
// asked.
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

// What a gradient is computed from, and where dgamma, dbeta and perhaps dz go.
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

// The first pass of a gradient: sums of dz and of dz * (x - mean), and what
// follows from them, per channel.
template <Mask kMask, bool kWrites>
class GradientSums {
 public:
  explicit GradientSums(const BatchNormShape& shape)
      : s_(shape),
        scratch_(s_, kNumBlocks),
        entries_(static_cast<size_t>(s_.groups * s_.channels)),
        factor_(entries_),
        block_sums_(2 * static_cast<size_t>(s_.num_threads * s_.channels)),
        totals_(2 * static_cast<size_t>(s_.num_threads) * entries_) {}

  void Run(const GradientOperands& operands) {
    o_ = operands;
    for (int64_t at = 0; at < s_.groups * s_.channels; ++at) {
      factor_[static_cast<size_t>(at)] = o_.gamma[at] * Scale(at % s_.channels);
    }
    std::ranges::fill(totals_, 0.0);
    s_.ForBlocks(/*is_reversed=*/false,
                 [&](int thread, int64_t group, int64_t row, int64_t rows) {
                   AddBlock(thread, group, row, rows);
                 });
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

  // The block's operands as floats. Until the thread's next block.
  GradientBlock BlockOf(int thread, int64_t group, int64_t row, int64_t rows) {
    const auto load = [&](const std::byte* data, size_t block) {
      return LoadRun(data, s_.dtype, row * s_.channels, rows * s_.channels,
                     scratch_.of(thread, block));
    };
    return {.dy = load(o_.dy, 0),
            .x = load(o_.x, 1),
            .y = kMask == Mask::kFromY ? load(o_.y, 2) : nullptr,
            .mean = o_.mean,
            .factor = factor_.data() + group * s_.channels,
            .beta = o_.beta + group * s_.channels,
            .rows = rows,
            .channels = s_.channels};
  }
  // Room for one more block of the thread.
  float* spare_block(int thread) { return scratch_.of(thread, 3); }

 private:
  static constexpr size_t kNumBlocks = 4;

  float Scale(int64_t channel) const {
    return 1.0f / std::sqrt(o_.variance[channel] + s_.epsilon);
  }

  // The block's sums in f32, added to the thread's totals of the group.
  void AddBlock(int thread, int64_t group, int64_t row, int64_t rows) {
    float* sum_dz = block_sums_.data() + 2 * thread * s_.channels;
    float* sum_dz_x = sum_dz + s_.channels;
    std::fill_n(sum_dz, 2 * s_.channels, 0.0f);
    const int64_t at = row * s_.channels;
    float* dz = kWrites ? PlaceOfRun(o_.dz, s_.dtype, at, spare_block(thread))
                        : nullptr;
    AddSums<kMask, kWrites>(BlockOf(thread, group, row, rows), dz, sum_dz,
                            sum_dz_x);
    if constexpr (kWrites) {
      StoreRun(dz, o_.dz, s_.dtype, at, rows * s_.channels);
    }
    double* total =
        totals_.data() + 2 * (static_cast<size_t>(thread) * entries_ +
                              static_cast<size_t>(group * s_.channels));
#pragma omp simd
    for (int64_t c = 0; c < 2 * s_.channels; ++c) {
      total[c] += static_cast<double>(sum_dz[c]);
    }
  }

  // Over all threads, in their order. Element k of a group: dz for k < C, then
  // dz * (x - mean).
  double Total(int64_t group, int64_t k) const {
    double sum = 0.0;
    for (size_t at = static_cast<size_t>(2 * group * s_.channels + k);
         at < totals_.size(); at += 2 * entries_) {
      sum += totals_[at];
    }
    return sum;
  }

  BatchNormShape s_;
  BlockScratch scratch_;
  size_t entries_;
  std::vector<float> factor_;
  std::vector<float> block_sums_;
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
        dx_(s_, 1),
        sums_(s_),
        slope_(static_cast<size_t>(s_.channels)),
        offset_(static_cast<size_t>(s_.channels)) {}

  // dx is written when the sums are there, and dy is read no more after them
  // where its masked form lies elsewhere
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
    s_.ForBlocks(/*is_reversed=*/true, [&](int thread, int64_t group,
                                           int64_t row, int64_t rows) {
      const int64_t at = row * s_.channels;
      GradientBlock block = sums_.BlockOf(thread, group, row, rows);
      float* dx =
          PlaceOfRun(operands_.outputs[0], s_.dtype, at, dx_.of(thread, 0));
      if constexpr (kHasY) {
        block.dy = LoadRun(operands_.outputs[3], s_.dtype, at,
                           rows * s_.channels, sums_.spare_block(thread));
        WriteGradient<Mask::kNone>(block, slope_.data(), offset_.data(), dx);
      } else {
        WriteGradient<kMask>(block, slope_.data(), offset_.data(), dx);
      }
      StoreRun(dx, operands_.outputs[0], s_.dtype, at, rows * s_.channels);
    });
  }

 private:
  BatchNormShape s_;
  BlockScratch dx_;
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

  // dz takes the place of dy or y element by element
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

std::unique_ptr<Kernel> MakeBatchMoments(const CpuRequest& request) {
  return std::make_unique<BatchMomentsKernel>(request);
}

std::unique_ptr<Kernel> MakeBatchNorm(const CpuRequest& request) {
  return std::make_unique<BatchNormKernel>(request);
}

template <template <Mask> typename GradientKernel>
std::unique_ptr<Kernel> MakeGradient(const CpuRequest& request, bool has_y) {
  if (!request.node.attributes.Bool("relu")) {
    return std::make_unique<GradientKernel<Mask::kNone>>(request);
  }
  if (has_y) return std::make_unique<GradientKernel<Mask::kFromY>>(request);
  return std::make_unique<GradientKernel<Mask::kFromX>>(request);
}

std::unique_ptr<Kernel> MakeBatchNormGradient(const CpuRequest& request) {
  return MakeGradient<BatchNormGradientKernel>(request,
                                               request.node.inputs.size() > 6);
}

std::unique_ptr<Kernel> MakeBatchNormApplyGradient(const CpuRequest& request) {
  return MakeGradient<BatchNormApplyGradientKernel>(
      request, request.node.inputs.size() > 5);
}

}  // namespace

void AddBatchNormKernels(CpuKernelTable& table) {
  table["BatchNorm"] = {.make = &MakeBatchNorm, .why_not = &WhyNotF32OrBF16};
  table["BatchNormGradient"] = {.make = &MakeBatchNormGradient,
                                .why_not = &WhyNotF32OrBF16};
  table["BatchMoments"] = {.make = &MakeBatchMoments,
                           .why_not = &WhyNotF32OrBF16};
  table["BatchNormApply"] = {.make = &MakeBatchNorm,
                             .why_not = &WhyNotF32OrBF16};
  table["BatchNormApplyGradient"] = {.make = &MakeBatchNormApplyGradient,
                                     .why_not = &WhyNotF32OrBF16};
  // small; as in common/
  table["CombineMoments"] = {};
  table["CombineMomentsGradient"] = {};
}

}  // namespace replicant::kernels::cpu
