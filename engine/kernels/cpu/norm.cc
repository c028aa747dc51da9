#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "base/parallel.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/stored.h"
#include "engine/kernels/cpu/tile_program.h"

// Layer norm in our own loops. It is bound by memory, and oneDNN's would move
// as much.
namespace replicant::kernels::cpu {
namespace {

// x as a matrix [rows, channels].
struct NormShape {
  DType dtype;
  int64_t rows, channels;
  float epsilon;
  int num_threads;
};

NormShape ShapeOf(const CpuRequest& request, const graph::TensorType& type) {
  const Shape& x = type.shape;
  const int64_t channels = x[x.rank() - 1];
  return {
      .dtype = type.dtype,
      .rows = channels == 0 ? 0 : x.num_elements() / channels,
      .channels = channels,
      .epsilon = static_cast<float>(request.node.attributes.Float("epsilon")),
      .num_threads = ThreadsFor(request.num_threads, 4 * x.num_elements())};
}

float Sum(const float* x, int64_t n) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

float SumOfSquaresAround(const float* x, float center, int64_t n) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += (x[i] - center) * (x[i] - center);
  return sum;
}

// Rows as floats, num_rows for each thread.
RunScratch RowScratch(const NormShape& s, size_t num_rows) {
  return {s.dtype, s.num_threads, num_rows, s.channels};
}

std::unique_ptr<Kernel> MakeLayerNorm(const CpuRequest& request) {
  const NormShape s = ShapeOf(request, request.input(0));
  TileProgram activation;
  if (request.node.attributes.Has("activation")) {
    activation = TileProgram(request.node.attributes.Program("activation"));
  }
  // each thread has a workspace of the activation
  std::vector<float> workspace(static_cast<size_t>(s.num_threads) *
                               activation.workspace_size());
  return MakeHostKernel(
      request, [s, activation, workspace,
                scratch = RowScratch(s, 2)](const Operands& operands) mutable {
        const float* gamma = operands.input<float>(1);
        const float* beta = operands.input<float>(2);
        const auto n = static_cast<float>(s.channels);
        ParallelFor(
            s.num_threads, s.rows, [&](int thread, int64_t begin, int64_t end) {
              float* own = workspace.data() + static_cast<size_t>(thread) *
                                                  activation.workspace_size();
              for (int64_t row = begin; row < end; ++row) {
                const int64_t at = row * s.channels;
                const float* xr = LoadRun(operands.inputs[0], s.dtype, at,
                                          s.channels, scratch.of(thread, 0));
                float* yr = PlaceOfRun(operands.outputs[0], s.dtype, at,
                                       scratch.of(thread, 1));
                const float mean = Sum(xr, s.channels) / n;
                const float variance =
                    SumOfSquaresAround(xr, mean, s.channels) / n;
                const float scale = 1.0f / std::sqrt(variance + s.epsilon);
#pragma omp simd
                for (int64_t c = 0; c < s.channels; ++c) {
                  yr[c] = (xr[c] - mean) * scale * gamma[c] + beta[c];
                }
                if (!activation.is_empty())
                  activation.RunInPlace(yr, s.channels, own);
                StoreRun(yr, operands.outputs[0], s.dtype, at, s.channels);
                operands.output<float>(1)[row] = mean;
                operands.output<float>(2)[row] = scale;
              }
            });
      });
}

// Column sums by several threads. A thread sums blocks of rows in f32, and adds
// them to the totals of the loop's part in double.
class ColumnSums {
 public:
  // Rows whose f32 sum loses less than its last two bits.
  static constexpr int64_t kBlockRows = 64;

  ColumnSums(const NormShape& s, int64_t num_sums)
      : num_sums_(static_cast<size_t>(num_sums)),
        block_(static_cast<size_t>(s.num_threads) * num_sums_),
        total_(static_cast<size_t>(NumParts(s.num_threads, s.rows)) *
               num_sums_) {}

  void Clear() {
    std::fill(block_.begin(), block_.end(), 0.0f);
    std::fill(total_.begin(), total_.end(), 0.0);
  }
  // The sums of the thread's current block.
  float* block(int thread) {
    return block_.data() + static_cast<size_t>(thread) * num_sums_;
  }
  // Ends the thread's block, of a part.
  void Flush(int thread, int64_t part) {
    float* block_sums = block(thread);
    double* total = total_.data() + static_cast<size_t>(part) * num_sums_;
    for (size_t i = 0; i < num_sums_; ++i) {
      total[i] += static_cast<double>(block_sums[i]);
      block_sums[i] = 0.0f;
    }
  }
  // Sums over all parts, in their order.
  double Total(int64_t i) const {
    double sum = 0.0;
    for (size_t at = static_cast<size_t>(i); at < total_.size();
         at += num_sums_) {
      sum += total_[at];
    }
    return sum;
  }

 private:
  size_t num_sums_;
  std::vector<float> block_;
  std::vector<double> total_;
};

// Calls add(thread, row) for all rows and flushes the sums after each block.
template <typename Add>
void SumRows(const NormShape& s, ColumnSums& sums, const Add& add) {
  sums.Clear();
  ParallelForParts(s.num_threads, s.rows,
                   [&](int thread, int64_t part, int64_t begin, int64_t end) {
                     for (int64_t row = begin; row < end; ++row) {
                       add(thread, row);
                       if ((row - begin) % ColumnSums::kBlockRows ==
                           ColumnSums::kBlockRows - 1) {
                         sums.Flush(thread, part);
                       }
                     }
                     sums.Flush(thread, part);
                   });
}

// inputs: dy, x, gamma, mean, 1/sqrt(variance + epsilon); formulas as in the
// reference
std::unique_ptr<Kernel> MakeLayerNormGradient(const CpuRequest& request) {
  const NormShape s = ShapeOf(request, request.input(1));
  return MakeHostKernel(
      request, [s, sums = ColumnSums(s, /*num_sums=*/2 * s.channels),
                scratch = RowScratch(s, 3)](const Operands& operands) mutable {
        const float* gamma = operands.input<float>(2);
        const auto n = static_cast<float>(s.channels);
        SumRows(s, sums, [&](int thread, int64_t row) {
          float* dgamma = sums.block(thread);
          float* dbeta = dgamma + s.channels;
          const int64_t at = row * s.channels;
          const float* dyr = LoadRun(operands.inputs[0], s.dtype, at,
                                     s.channels, scratch.of(thread, 0));
          const float* xr = LoadRun(operands.inputs[1], s.dtype, at, s.channels,
                                    scratch.of(thread, 1));
          float* dxr = PlaceOfRun(operands.outputs[0], s.dtype, at,
                                  scratch.of(thread, 2));
          const float mean = operands.input<float>(3)[row];
          const float scale = operands.input<float>(4)[row];
          float sum_d = 0.0f;
          float sum_d_x_hat = 0.0f;
#pragma omp simd reduction(+ : sum_d, sum_d_x_hat)
          for (int64_t c = 0; c < s.channels; ++c) {
            const float x_hat = (xr[c] - mean) * scale;
            const float d = dyr[c] * gamma[c];
            sum_d += d;
            sum_d_x_hat += d * x_hat;
            dgamma[c] += dyr[c] * x_hat;
            dbeta[c] += dyr[c];
          }
          const float mean_d = sum_d / n;
          const float mean_d_x_hat = sum_d_x_hat / n;
#pragma omp simd
          for (int64_t c = 0; c < s.channels; ++c) {
            const float x_hat = (xr[c] - mean) * scale;
            dxr[c] =
                scale * (dyr[c] * gamma[c] - mean_d - x_hat * mean_d_x_hat);
          }
          StoreRun(dxr, operands.outputs[0], s.dtype, at, s.channels);
        });
        for (int64_t c = 0; c < s.channels; ++c) {
          operands.output<float>(1)[c] = static_cast<float>(sums.Total(c));
          operands.output<float>(2)[c] =
              static_cast<float>(sums.Total(s.channels + c));
        }
      });
}

}  // namespace

std::string WhyNotNorm(const KernelRequest& request) {
  if (std::string why = WhyNotF32OrBF16(request); !why.empty()) return why;
  // beta and statistics have the dtype of gamma
  const std::string_view op = request.node.op->name;
  const size_t gamma = op.ends_with("Gradient") ? 2 : 1;
  const graph::TensorType& vector =
      op == "BatchMoments" ? request.output() : request.input(gamma);
  if (vector.dtype == DType::kF32) return {};
  return "it takes gamma, beta and statistics in f32, got " + vector.ToString();
}

void AddNormKernels(CpuKernelTable& table) {
  table["LayerNorm"] = {.make = &MakeLayerNorm, .why_not = &WhyNotNorm};
  table["LayerNormGradient"] = {.make = &MakeLayerNormGradient,
                                .why_not = &WhyNotNorm};
}

}  // namespace replicant::kernels::cpu
