#pragma once

#include "engine/kernels/cuda/bodies/device.h"

// The bodies of linear algebra: one warp for each matrix of a batch.
namespace replicant::kernels::cuda {

// x = S^-1 b with S = (a + a^T) / 2, by the factor L of S = L L^T; see
// graph/ops/linalg.h. Computed in double: S may be close to singular, and the
// matrices are small. NaN where S is not positive definite.
template <typename T>
struct CholeskySolve {
  REPLICANT_DEVICE void operator()(const Warp& warp, int64_t i) const {
    double* const s = work + i * n * (n + m);  // [n, n], L in its lower half
    double* const y = s + n * n;               // [n, m]
    const T* const own_a = a + i * n * n;
    const T* const own_b = b + i * n * m;
    warp.ForEach(n * n, [&](int64_t at) {
      const int64_t row = at / n;
      const int64_t column = at % n;
      s[at] = 0.5 * (static_cast<double>(Load(own_a, at)) +
                     static_cast<double>(Load(own_a, column * n + row)));
    });
    warp.ForEach(n * m, [&](int64_t at) {
      y[at] = static_cast<double>(Load(own_b, at));
    });
    warp.Synchronize();
    const bool is_definite = Factorize(warp, s);
    // each lane solves for its columns
    warp.ForEach(m, [&](int64_t column) { Solve(s, y + column); });
    warp.Synchronize();
    warp.ForEach(n * m, [&](int64_t at) {
      Store(x + i * n * m, at, is_definite ? static_cast<float>(y[at]) : NAN);
    });
  }

  // Column by column: the pivot by all lanes together, then a row below it by
  // each lane. Returns whether all pivots are positive.
  REPLICANT_DEVICE bool Factorize(const Warp& warp, double* s) const {
    for (int64_t j = 0; j < n; ++j) {
      const double* const pivot_row = s + j * n;
      const double pivot =
          pivot_row[j] -
          warp.Reduce(
              j, 0.0, [&](int64_t k) { return pivot_row[k] * pivot_row[k]; },
              [](double p, double q) { return p + q; });
      if (!(pivot > 0.0)) return false;
      const double root = sqrt(pivot);
      // every lane has read the pivot
      warp.Synchronize();
      warp.ForEach(n - j, [&](int64_t below) {
        double* const row = s + (j + below) * n;
        double value = row[j];
        if (below > 0) {
          for (int64_t k = 0; k < j; ++k) value -= row[k] * pivot_row[k];
        }
        row[j] = below > 0 ? value / root : root;
      });
      warp.Synchronize();
    }
    return true;
  }

  // L z = column, then L^T x = z, in place in a column of [n, m].
  REPLICANT_DEVICE void Solve(const double* s, double* column) const {
    for (int64_t row = 0; row < n; ++row) {
      double sum = column[row * m];
      for (int64_t k = 0; k < row; ++k) sum -= s[row * n + k] * column[k * m];
      column[row * m] = sum / s[row * n + row];
    }
    for (int64_t row = n - 1; row >= 0; --row) {
      double sum = column[row * m];
      for (int64_t k = row + 1; k < n; ++k)
        sum -= s[k * n + row] * column[k * m];
      column[row * m] = sum / s[row * n + row];
    }
  }

  int64_t n, m;
  const T* a;    // [batch, n, n]
  const T* b;    // [batch, n, m]
  T* x;          // [batch, n, m]
  double* work;  // [batch, n, n + m]
};

}  // namespace replicant::kernels::cuda
