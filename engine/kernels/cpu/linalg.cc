// Eigen's products and factorizations. Threads divide the batch and, of a
// product, the rows, so Eigen itself runs on one.
#define EIGEN_DONT_PARALLELIZE

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <limits>
#include <memory>

#include "base/parallel.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/vector_functions.h"

namespace replicant::kernels::cpu {
namespace {

using Matrix =
    Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using View = Eigen::Map<Matrix>;
using ConstView = Eigen::Map<const Matrix>;

const float* Floats(const std::byte* data) {
  return reinterpret_cast<const float*>(data);
}

class BatchMatMulKernel : public Kernel {
 public:
  explicit BatchMatMulKernel(const CpuRequest& request)
      : transpose_a_(request.node.attributes.Bool("transpose_a")),
        transpose_b_(request.node.attributes.Bool("transpose_b")),
        batch_(request.output().shape[0]),
        m_(request.output().shape[1]),
        n_(request.output().shape[2]),
        k_(request.input(0).shape[transpose_a_ ? 1 : 2]),
        num_threads_(
            ThreadsFor(request.num_threads, batch_ * m_ * n_ * k_ / 8)) {}

  void Bind(const KernelBindings& bindings) override { bindings_ = bindings; }

  void Launch(Stream& /*stream*/) override {
    const int64_t blocks = (m_ + kRows - 1) / kRows;
    ParallelFor(num_threads_, batch_ * blocks,
                [&](int /*thread*/, int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    Multiply(i / blocks, i % blocks * kRows);
                  }
                });
  }

 private:
  // Rows of a product that a thread computes at a time.
  static constexpr int64_t kRows = 64;

  // Rows of one product, from `row` on.
  void Multiply(int64_t i, int64_t row) const {
    const int64_t rows = std::min(kRows, m_ - row);
    const float* a = Floats(bindings_.inputs[0]) + i * m_ * k_;
    const float* b = Floats(bindings_.inputs[1]) + i * k_ * n_;
    View c(reinterpret_cast<float*>(bindings_.outputs[0]) + (i * m_ + row) * n_,
           rows, n_);
    const auto product = [&](const auto& left) {
      if (transpose_b_) {
        c.noalias() = left * ConstView(b, n_, k_).transpose();
      } else {
        c.noalias() = left * ConstView(b, k_, n_);
      }
    };
    if (transpose_a_) {
      product(ConstView(a, k_, m_).middleCols(row, rows).transpose());
    } else {
      product(ConstView(a, m_, k_).middleRows(row, rows));
    }
  }

  const bool transpose_a_, transpose_b_;
  const int64_t batch_, m_, n_, k_;
  const int num_threads_;
  KernelBindings bindings_;
};

class CholeskySolveKernel : public Kernel {
 public:
  explicit CholeskySolveKernel(const CpuRequest& request) {
    const Shape& shape = request.output().shape;
    const int rank = shape.rank();
    batch_ = rank == 3 ? shape[0] : 1;
    n_ = shape[rank - 2];
    m_ = shape[rank - 1];
    num_threads_ = static_cast<int>(std::clamp<int64_t>(
        ThreadsFor(request.num_threads, batch_ * n_ * n_ * n_ / 8), 1,
        std::max<int64_t>(batch_, 1)));
  }

  // A factor for each thread.
  size_t scratch_size_bytes() const override {
    return static_cast<size_t>(num_threads_ * n_ * n_) * sizeof(float);
  }
  void Bind(const KernelBindings& bindings) override { bindings_ = bindings; }

  void Launch(Stream& /*stream*/) override {
    ParallelFor(num_threads_, batch_,
                [&](int thread, int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) Solve(thread, i);
                });
  }

 private:
  void Solve(int thread, int64_t i) const {
    const ConstView a(Floats(bindings_.inputs[0]) + i * n_ * n_, n_, n_);
    const ConstView b(Floats(bindings_.inputs[1]) + i * n_ * m_, n_, m_);
    View factor(reinterpret_cast<float*>(bindings_.scratch) + thread * n_ * n_,
                n_, n_);
    View x(reinterpret_cast<float*>(bindings_.outputs[0]) + i * n_ * m_, n_,
           m_);
    factor = 0.5F * (a + a.transpose());
    const Eigen::LLT<Eigen::Ref<Matrix>> llt(factor);
    if (llt.info() != Eigen::Success) {
      x.setConstant(std::numeric_limits<float>::quiet_NaN());
      return;
    }
    x = b;
    llt.solveInPlace(x);
  }

  int64_t batch_ = 1, n_ = 0, m_ = 0;
  int num_threads_ = 1;
  KernelBindings bindings_;
};

template <typename T>
std::unique_ptr<Kernel> Make(const CpuRequest& request) {
  return std::make_unique<T>(request);
}

}  // namespace

void AddLinalgKernels(CpuKernelTable& table) {
  table["BatchMatMul"] = {.make = &Make<BatchMatMulKernel>,
                          .why_not = &WhyNotF32};
  table["CholeskySolve"] = {.make = &Make<CholeskySolveKernel>,
                            .why_not = &WhyNotF32};
}

}  // namespace replicant::kernels::cpu
