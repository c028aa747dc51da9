#include <array>
#include <vector>

#include "base/parallel.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/primitive.h"
#include "engine/kernels/cpu/tile_program.h"
#include "engine/kernels/cpu/vector_functions.h"

namespace replicant::kernels::cpu {
namespace {

using dnnl::memory;

struct MatMulShape {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};

MatMulShape ShapeOf(const KernelRequest& request) {
  const graph::Attributes& attributes = request.node.attributes;
  const bool transpose_a = attributes.Bool("transpose_a");
  return {.m = request.output().shape[0],
          .n = request.output().shape[1],
          .k = request.input(0).shape[transpose_a ? 0 : 1],
          .transpose_a = transpose_a,
          .transpose_b = attributes.Bool("transpose_b")};
}

class MatMulKernel : public Kernel {
 public:
  explicit MatMulKernel(const CpuRequest& request)
      : result_(request.output(), request.num_threads, &scratch_) {
    const MatMulShape s = ShapeOf(request);
    for (size_t i = 0; i < request.node.inputs.size(); ++i) {
      operands_.emplace_back(request.input(i), request.num_threads, &scratch_);
    }
    const auto dtype = [&](size_t i) { return request.input(i).dtype; };
    const memory::desc a = Matrix(s.m, s.k, s.transpose_a, dtype(0));
    const memory::desc b = Matrix(s.k, s.n, s.transpose_b, dtype(1));
    const memory::desc c = Matrix(s.m, s.n, false, request.output().dtype);
    const memory::desc bias =
        operands_.size() > 2 ? Matrix(1, s.n, false, dtype(2)) : memory::desc();
    product_ = Product(a, b, bias, c, AttributesOf(request.node.attributes),
                       request.num_threads, &scratch_);
  }

  size_t scratch_size_bytes() const override { return scratch_.size_bytes(); }
  void Bind(const KernelBindings& bindings) override {
    constexpr std::array kArguments = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS,
                                       DNNL_ARG_BIAS};
    for (size_t i = 0; i < operands_.size(); ++i) {
      product_.Bind(kArguments[i],
                    operands_[i].Bind(bindings.inputs[i], bindings.scratch));
    }
    product_.Bind(DNNL_ARG_DST,
                  result_.Bind(bindings.outputs[0], bindings.scratch));
    product_.BindScratch(bindings.scratch);
  }
  void Launch(Stream& /*stream*/) override {
    for (const ConvertedOperand& operand : operands_) operand.Load();
    product_.Run();
    result_.Store();
  }

 private:
  ScratchLayout scratch_;
  std::vector<ConvertedOperand> operands_;
  ConvertedOperand result_;
  Product product_;
};

// Few rows times a matrix stored [N, K]. Each element of the result is the dot
// product of two contiguous rows, and reading the matrix from memory is the
// limit.
class MatVecKernel : public Kernel {
 public:
  // A blocked product is faster for more rows.
  static constexpr int64_t kMaxRows = 4;

  static bool CanRun(const KernelRequest& request) {
    const MatMulShape s = ShapeOf(request);
    return request.input(0).dtype == DType::kF32 && s.m <= kMaxRows &&
           s.transpose_b && !s.transpose_a;
  }

  explicit MatVecKernel(const CpuRequest& request)
      : shape_(ShapeOf(request)), has_bias_(request.node.inputs.size() > 2) {
    const graph::Attributes& attributes = request.node.attributes;
    if (attributes.Has("activation")) {
      activation_ = TileProgram(attributes.Program("activation"));
    }
    num_threads_ =
        ThreadsFor(request.num_threads, shape_.m * shape_.n * shape_.k / 8);
  }

  size_t scratch_size_bytes() const override {
    return static_cast<size_t>(num_threads_) * activation_.workspace_size() *
           sizeof(float);
  }
  void Bind(const KernelBindings& bindings) override { bindings_ = bindings; }

  void Launch(Stream& /*stream*/) override {
    ParallelFor(num_threads_, shape_.n,
                [&](int thread, int64_t begin, int64_t end) {
                  RunColumns(thread, begin, end);
                });
  }

 private:
  void RunColumns(int thread, int64_t begin, int64_t end) const {
    const auto* a = reinterpret_cast<const float*>(bindings_.inputs[0]);
    const auto* b = reinterpret_cast<const float*>(bindings_.inputs[1]);
    auto* c = reinterpret_cast<float*>(bindings_.outputs[0]);
    const auto* bias = has_bias_
                           ? reinterpret_cast<const float*>(bindings_.inputs[2])
                           : nullptr;
    for (int64_t m = 0; m < shape_.m; ++m) {
      float* row = c + m * shape_.n;
      MatrixTimesVector(b + begin * shape_.k, static_cast<size_t>(end - begin),
                        static_cast<size_t>(shape_.k), a + m * shape_.k,
                        row + begin);
      if (bias == nullptr) continue;
#pragma omp simd
      for (int64_t n = begin; n < end; ++n) row[n] += bias[n];
    }
    if (activation_.is_empty()) return;
    float* workspace =
        reinterpret_cast<float*>(bindings_.scratch) +
        static_cast<size_t>(thread) * activation_.workspace_size();
    for (int64_t m = 0; m < shape_.m; ++m) {
      activation_.RunInPlace(c + m * shape_.n + begin, end - begin, workspace);
    }
  }

  MatMulShape shape_;
  bool has_bias_;
  TileProgram activation_;
  int num_threads_ = 1;
  KernelBindings bindings_;
};

std::unique_ptr<Kernel> MakeMatMul(const CpuRequest& request) {
  if (MatVecKernel::CanRun(request)) {
    return std::make_unique<MatVecKernel>(request);
  }
  return std::make_unique<MatMulKernel>(request);
}

}  // namespace

void AddMatMulKernels(CpuKernelTable& table) {
  table["MatMul"] = {.make = &MakeMatMul, .why_not = &WhyNotF32OrBF16};
}

}  // namespace replicant::kernels::cpu
