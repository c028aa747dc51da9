#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include "base/parallel.h"
#include "engine/kernels/cpu/cpu_kernels.h"

namespace replicant::kernels::cpu {
namespace {

// A reduction's neutral element, and one step. NaN wins.
struct SumOf {
  static constexpr float kStart = 0.0f;
  static float Step(float so_far, float x) { return so_far + x; }
};
struct MaxOf {
  static constexpr float kStart = -std::numeric_limits<float>::infinity();
  static float Step(float so_far, float x) {
    return x > so_far || x != x ? x : so_far;
  }
};
struct MinOf {
  static constexpr float kStart = std::numeric_limits<float>::infinity();
  static float Step(float so_far, float x) {
    return x < so_far || x != x ? x : so_far;
  }
};

// A reduction to f32 over the middle axis of [outer, reduced, inner]. Other
// sets of axes are left to common/.
struct ReduceShape {
  int64_t outer = 1;
  int64_t reduced = 1;
  int64_t inner = 1;
  bool is_of_this_form = true;
  // 1, or for a mean one over the number of elements
  float factor = 1.0f;
  int num_threads = 1;
};

ReduceShape ShapeOf(const KernelRequest& request, int num_threads) {
  ReduceShape s;
  const Shape& x = request.input(0).shape;
  const std::vector<int64_t>& axes = request.node.attributes.Ints("axes");
  for (int axis = 0; axis < x.rank(); ++axis) {
    const bool is_reduced =
        std::find(axes.begin(), axes.end(), axis) != axes.end();
    if (x[axis] == 1) continue;
    if (!is_reduced) {
      (s.reduced == 1 ? s.outer : s.inner) *= x[axis];
    } else if (s.inner == 1) {
      s.reduced *= x[axis];
    } else {
      s.is_of_this_form = false;
    }
  }
  if (request.node.op->name == "ReduceMean") {
    s.factor = 1.0f / static_cast<float>(s.reduced);
  }
  s.num_threads = ThreadsFor(num_threads, x.num_elements());
  return s;
}

// Elements whose f32 sum loses little. Longer sums are in double.
constexpr int64_t kBlock = 256;

// The reduction of n contiguous elements.
template <typename Op, typename T>
double ReduceRun(const T* x, int64_t n) {
  constexpr int64_t kLanes = 16;
  double total = static_cast<double>(Op::kStart);
  for (int64_t begin = 0; begin < n; begin += kBlock * kLanes) {
    const int64_t end = std::min(n, begin + kBlock * kLanes);
    // a fixed number of partial results fixes the order of the sum
    float lanes[kLanes];
    std::fill_n(lanes, kLanes, Op::kStart);
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
#pragma omp simd
      for (int64_t k = 0; k < kLanes; ++k) {
        lanes[k] = Op::Step(lanes[k], static_cast<float>(x[i + k]));
      }
    }
    for (int64_t k = 0; i + k < end; ++k) {
      lanes[k] = Op::Step(lanes[k], static_cast<float>(x[i + k]));
    }
    for (const float lane : lanes) {
      if constexpr (std::is_same_v<Op, SumOf>) {
        total += static_cast<double>(lane);
      } else {
        total = static_cast<double>(Op::Step(static_cast<float>(total), lane));
      }
    }
  }
  return total;
}

// y[k] = reduction over rows of x[row * stride + k], k < n <= kColumns.
constexpr int64_t kColumns = 256;

template <typename Op, typename T>
void ReduceColumns(const T* x, int64_t rows, int64_t stride, int64_t n,
                   float factor, float* y) {
  float block[kColumns];
  double total[kColumns];
  std::fill_n(total, n, static_cast<double>(Op::kStart));
  for (int64_t begin = 0; begin < rows; begin += kBlock) {
    const int64_t end = std::min(rows, begin + kBlock);
    std::fill_n(block, n, Op::kStart);
    for (int64_t row = begin; row < end; ++row) {
      const T* xr = x + row * stride;
#pragma omp simd
      for (int64_t k = 0; k < n; ++k) {
        block[k] = Op::Step(block[k], static_cast<float>(xr[k]));
      }
    }
    for (int64_t k = 0; k < n; ++k) {
      if constexpr (std::is_same_v<Op, SumOf>) {
        total[k] += static_cast<double>(block[k]);
      } else {
        total[k] = static_cast<double>(
            Op::Step(static_cast<float>(total[k]), block[k]));
      }
    }
  }
  for (int64_t k = 0; k < n; ++k) {
    y[k] = static_cast<float>(total[k]) * factor;
  }
}

// Few columns and many rows: the rows are divided, and the results of the parts
// combined in order.
constexpr int64_t kRowsPerPart = 4096;

template <typename Op, typename T>
std::unique_ptr<Kernel> MakeTallReduction(const CpuRequest& request,
                                          const ReduceShape& s) {
  const int64_t parts = (s.reduced + kRowsPerPart - 1) / kRowsPerPart;
  std::vector<float> partial(static_cast<size_t>(parts * s.inner));
  return MakeHostKernel(request, [s, parts,
                                  partial](const Operands& operands) mutable {
    const T* x = operands.input<T>(0);
    ParallelFor(
        s.num_threads, parts, [&](int /*thread*/, int64_t begin, int64_t end) {
          for (int64_t part = begin; part < end; ++part) {
            const int64_t first = part * kRowsPerPart;
            ReduceColumns<Op>(
                x + first * s.inner, std::min(kRowsPerPart, s.reduced - first),
                s.inner, s.inner, 1.0f, partial.data() + part * s.inner);
          }
        });
    ReduceColumns<Op>(partial.data(), parts, s.inner, s.inner, s.factor,
                      operands.output<float>());
  });
}

template <typename Op, typename T>
std::unique_ptr<Kernel> MakeRowReduction(const CpuRequest& request,
                                         const ReduceShape& s) {
  return MakeHostKernel(request, [s](const Operands& operands) {
    const T* x = operands.input<T>(0);
    ParallelFor(s.num_threads, s.outer,
                [&](int /*thread*/, int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    operands.output<float>()[i] =
                        static_cast<float>(
                            ReduceRun<Op>(x + i * s.reduced, s.reduced)) *
                        s.factor;
                  }
                });
  });
}

template <typename Op, typename T>
std::unique_ptr<Kernel> MakeColumnReduction(const CpuRequest& request,
                                            const ReduceShape& s) {
  return MakeHostKernel(request, [s](const Operands& operands) {
    const T* x = operands.input<T>(0);
    float* y = operands.output<float>();
    const int64_t strips = (s.inner + kColumns - 1) / kColumns;
    ParallelFor(s.num_threads, s.outer * strips,
                [&](int /*thread*/, int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const int64_t outer = i / strips;
                    const int64_t column = i % strips * kColumns;
                    ReduceColumns<Op>(x + outer * s.reduced * s.inner + column,
                                      s.reduced, s.inner,
                                      std::min(kColumns, s.inner - column),
                                      s.factor, y + outer * s.inner + column);
                  }
                });
  });
}

template <typename Op, typename T>
std::unique_ptr<Kernel> MakeReduction(const CpuRequest& request,
                                      const ReduceShape& s) {
  if (s.inner == 1) return MakeRowReduction<Op, T>(request, s);
  if (s.outer == 1 && s.inner <= kColumns && s.reduced > kRowsPerPart) {
    return MakeTallReduction<Op, T>(request, s);
  }
  return MakeColumnReduction<Op, T>(request, s);
}

std::unique_ptr<Kernel> MakeReduce(const CpuRequest& request) {
  const std::string_view op = request.node.op->name;
  const ReduceShape s = ShapeOf(request, request.num_threads);
  const DType dtype = request.input(0).dtype;
  const bool is_sum = op == "ReduceSum" || op == "ReduceMean";
  const bool is_ours = request.output().dtype == DType::kF32 &&
                       s.is_of_this_form &&
                       request.input(0).shape.num_elements() > 0;
  if (is_ours && is_sum && dtype == DType::kBF16) {
    return MakeReduction<SumOf, BFloat16>(request, s);
  }
  if (is_ours && is_sum) return MakeReduction<SumOf, float>(request, s);
  if (is_ours && op == "ReduceMax") {
    return MakeReduction<MaxOf, float>(request, s);
  }
  if (is_ours && op == "ReduceMin") {
    return MakeReduction<MinOf, float>(request, s);
  }
  return MakeCommonKernel(request);
}

}  // namespace

void AddReduceKernels(CpuKernelTable& table) {
  for (const std::string_view op :
       {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"}) {
    table[op] = {.make = &MakeReduce};
  }
}

}  // namespace replicant::kernels::cpu
