#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/vector_functions.h"

namespace replicant::kernels::cpu {
namespace {

struct RowShape {
  int64_t rows, columns;
  int num_threads;
};

RowShape ShapeOf(const CpuRequest& request) {
  const Shape& x = request.input(0).shape;
  const int64_t columns = x[x.rank() - 1];
  return {
      .rows = columns == 0 ? 0 : x.num_elements() / columns,
      .columns = columns,
      // an exponential costs about ten simple operations
      .num_threads = ThreadsFor(request.num_threads, 16 * x.num_elements())};
}

// The exponential and the shift of a row, for this processor.
struct RowFunctions {
  VectorFunction affine = FindVectorFunction(graph::ScalarOp::kAffine);
  VectorFunction exp = FindVectorFunction(graph::ScalarOp::kExp);

  void Shift(const float* x, float shift, float* out, int64_t n) const {
    affine(x, nullptr, nullptr, 1.0f, shift, out, static_cast<size_t>(n));
  }
  void Scale(float* x, float scale, int64_t n) const {
    affine(x, nullptr, nullptr, scale, 0.0f, x, static_cast<size_t>(n));
  }
  // out = x - max(x); returns sum e^out. `e` has room for n elements.
  float ShiftByMax(const float* x, float* out, float* e, int64_t n) const {
    float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
    for (int64_t k = 0; k < n; ++k) {
      largest = x[k] > largest ? x[k] : largest;
    }
    Shift(x, -largest, out, n);
    exp(out, nullptr, nullptr, 0.0f, 0.0f, e, static_cast<size_t>(n));
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < n; ++k) sum += e[k];
    return sum;
  }
};

// Two rows of scratch for each thread.
std::vector<float> RowWorkspace(const RowShape& s) {
  return std::vector<float>(
      static_cast<size_t>(2 * s.columns * int64_t{s.num_threads}));
}

std::unique_ptr<Kernel> MakeSoftmax(const CpuRequest& request) {
  const RowShape s = ShapeOf(request);
  const bool is_log = request.node.op->name == "LogSoftmax";
  return MakeHostKernel(
      request, [s, is_log, f = RowFunctions(),
                workspace = RowWorkspace(s)](const Operands& operands) mutable {
        ParallelFor(
            s.num_threads, s.rows, [&](int thread, int64_t begin, int64_t end) {
              float* room = workspace.data() + 2 * s.columns * thread;
              for (int64_t row = begin; row < end; ++row) {
                const float* x = operands.input<float>(0) + row * s.columns;
                float* y = operands.output<float>() + row * s.columns;
                if (is_log) {
                  const float sum = f.ShiftByMax(x, y, room, s.columns);
                  f.Shift(y, -std::log(sum), y, s.columns);
                } else {
                  const float sum = f.ShiftByMax(x, room, y, s.columns);
                  f.Scale(y, 1.0f / sum, s.columns);
                }
              }
            });
      });
}

// inputs: logits, target
std::unique_ptr<Kernel> MakeCrossEntropy(const CpuRequest& request) {
  const RowShape s = ShapeOf(request);
  return MakeHostKernel(
      request, [s, f = RowFunctions(),
                workspace = RowWorkspace(s)](const Operands& operands) mutable {
        ParallelFor(
            s.num_threads, s.rows, [&](int thread, int64_t begin, int64_t end) {
              float* shifted = workspace.data() + 2 * s.columns * thread;
              float* room = shifted + s.columns;
              for (int64_t row = begin; row < end; ++row) {
                const float* x = operands.input<float>(0) + row * s.columns;
                const float* t = operands.input<float>(1) + row * s.columns;
                const float log_sum =
                    std::log(f.ShiftByMax(x, shifted, room, s.columns));
                float loss = 0.0f;
#pragma omp simd reduction(+ : loss)
                for (int64_t k = 0; k < s.columns; ++k) {
                  loss += t[k] * (log_sum - shifted[k]);
                }
                operands.output<float>()[row] = loss;
              }
            });
      });
}

// inputs: probabilities [B, K], reward [B], discount [B]. The hat function of
// the definition is nonzero at no more than two neighbours of a moved atom. The
// zeros matter in a row with a number that is not finite: their product is NaN.
std::unique_ptr<Kernel> MakeProjection(const CpuRequest& request) {
  const RowShape s = ShapeOf(request);
  const double v_min = request.node.attributes.Float("v_min");
  const double v_max = request.node.attributes.Float("v_max");
  return MakeHostKernel(request, [s, v_min, v_max](const Operands& operands) {
    const double gap = (v_max - v_min) / static_cast<double>(s.columns - 1);
    ParallelFor(
        s.num_threads, s.rows, [&](int /*thread*/, int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            const float* p = operands.input<float>(0) + row * s.columns;
            const auto reward =
                static_cast<double>(operands.input<float>(1)[row]);
            const auto discount =
                static_cast<double>(operands.input<float>(2)[row]);
            float* m = operands.output<float>() + row * s.columns;
            std::fill_n(m, s.columns, 0.0f);
            bool is_finite = true;
            for (int64_t j = 0; j < s.columns; ++j) {
              const double z = v_min + static_cast<double>(j) * gap;
              const double moved =
                  std::clamp(reward + discount * z, v_min, v_max);
              const double place = (moved - v_min) / gap;
              is_finite &= !std::isnan(place) && std::isfinite(p[j]);
              if (std::isnan(place)) continue;
              const int64_t lower =
                  std::min(static_cast<int64_t>(place), s.columns - 2);
              const auto share =
                  static_cast<float>(place - static_cast<double>(lower));
              m[lower] += p[j] * (1.0f - share);
              m[lower + 1] += p[j] * share;
            }
            if (is_finite) continue;
            std::replace_if(
                m, m + s.columns,
                [](float mass) { return std::isfinite(mass); },
                std::numeric_limits<float>::quiet_NaN());
          }
        });
  });
}

}  // namespace

void AddLossKernels(CpuKernelTable& table) {
  table["Softmax"] = {.make = &MakeSoftmax, .why_not = &WhyNotF32};
  table["LogSoftmax"] = {.make = &MakeSoftmax, .why_not = &WhyNotF32};
  table["SoftmaxCrossEntropy"] = {.make = &MakeCrossEntropy,
                                  .why_not = &WhyNotF32};
  table["CategoricalProjection"] = {.make = &MakeProjection,
                                    .why_not = &WhyNotF32};
}

}  // namespace replicant::kernels::cpu
