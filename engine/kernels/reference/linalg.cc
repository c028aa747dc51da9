#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "engine/kernels/common/element.h"
#include "engine/kernels/reference/reference_kernels.h"

namespace replicant::kernels::reference {
namespace {

struct BatchMatMulPlan {
  int64_t batch, m, n, k;
  bool transpose_a, transpose_b;
};

template <typename T>
void RunBatchMatMul(const BatchMatMulPlan& p, const Operands& operands) {
  for (int64_t i = 0; i < p.batch; ++i) {
    const T* a = operands.input<T>(0) + i * p.m * p.k;
    const T* b = operands.input<T>(1) + i * p.k * p.n;
    T* c = operands.output<T>() + i * p.m * p.n;
    for (int64_t m = 0; m < p.m; ++m) {
      for (int64_t n = 0; n < p.n; ++n) {
        double sum = 0.0;
        for (int64_t k = 0; k < p.k; ++k) {
          sum += ToDouble(a[p.transpose_a ? k * p.m + m : m * p.k + k]) *
                 ToDouble(b[p.transpose_b ? n * p.k + k : k * p.n + n]);
        }
        c[m * p.n + n] = FromDouble<T>(sum);
      }
    }
  }
}

RunFunction MakeBatchMatMul(const KernelRequest& request) {
  const graph::Attributes& attributes = request.node.attributes;
  const bool transpose_a = attributes.Bool("transpose_a");
  const Shape& c = request.output().shape;
  const BatchMatMulPlan plan{.batch = c[0],
                             .m = c[1],
                             .n = c[2],
                             .k = request.input(0).shape[transpose_a ? 1 : 2],
                             .transpose_a = transpose_a,
                             .transpose_b = attributes.Bool("transpose_b")};
  return DispatchFloating(request.output().dtype,
                          [&]<typename T>() -> RunFunction {
                            return [plan](const Operands& operands) {
                              RunBatchMatMul<T>(plan, operands);
                            };
                          });
}

// The lower factor of a symmetric [n, n] in place, row by row. Returns whether
// it is positive definite.
bool Factorize(int64_t n, double* s) {
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t column = 0; column <= row; ++column) {
      double sum = s[row * n + column];
      for (int64_t k = 0; k < column; ++k) {
        sum -= s[row * n + k] * s[column * n + k];
      }
      if (row != column) {
        s[row * n + column] = sum / s[column * n + column];
      } else if (sum > 0.0) {
        s[row * n + row] = std::sqrt(sum);
      } else {
        return false;
      }
    }
  }
  return true;
}

template <typename T>
void RunSolve(int64_t batch, int64_t n, int64_t m, std::vector<double>& work,
              const Operands& operands) {
  double* const s = work.data();
  double* const x = s + n * n;
  for (int64_t i = 0; i < batch; ++i) {
    const T* a = operands.input<T>(0) + i * n * n;
    const T* b = operands.input<T>(1) + i * n * m;
    T* result = operands.output<T>() + i * n * m;
    for (int64_t row = 0; row < n; ++row) {
      for (int64_t column = 0; column < n; ++column) {
        s[row * n + column] = 0.5 * (ToDouble(a[row * n + column]) +
                                     ToDouble(a[column * n + row]));
      }
    }
    const bool is_definite = Factorize(n, s);
    for (int64_t column = 0; column < m; ++column) {
      // L y = b, then L^T x = y
      for (int64_t row = 0; row < n; ++row) {
        double sum = ToDouble(b[row * m + column]);
        for (int64_t k = 0; k < row; ++k) sum -= s[row * n + k] * x[k];
        x[row] = sum / s[row * n + row];
      }
      for (int64_t row = n - 1; row >= 0; --row) {
        double sum = x[row];
        for (int64_t k = row + 1; k < n; ++k) sum -= s[k * n + row] * x[k];
        x[row] = sum / s[row * n + row];
      }
      for (int64_t row = 0; row < n; ++row) {
        result[row * m + column] = FromDouble<T>(
            is_definite ? x[row] : std::numeric_limits<double>::quiet_NaN());
      }
    }
  }
}

RunFunction MakeSolve(const KernelRequest& request) {
  const Shape& shape = request.output().shape;
  const int rank = shape.rank();
  const int64_t batch = rank == 3 ? shape[0] : 1;
  const int64_t n = shape[rank - 2];
  const int64_t m = shape[rank - 1];
  // a factor, and a column of the solution
  auto work =
      std::make_shared<std::vector<double>>(static_cast<size_t>(n * n + n));
  return DispatchFloating(request.output().dtype,
                          [&]<typename T>() -> RunFunction {
                            return [=](const Operands& operands) {
                              RunSolve<T>(batch, n, m, *work, operands);
                            };
                          });
}

}  // namespace

void AddLinalgKernels(HostKernelTable& table) {
  table.emplace("BatchMatMul", &MakeBatchMatMul);
  table.emplace("CholeskySolve", &MakeSolve);
}

}  // namespace replicant::kernels::reference
