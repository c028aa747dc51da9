#include "tests/support/fake_cuda/host_convolution.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/kernels/common/element.h"
#include "tests/support/fake_cuda/host_library.h"
#include "tests/support/fake_cuda/tf32.h"

namespace replicant::testing {
namespace {

using kernels::cuda::ConvolutionKind;
using kernels::cuda::ConvolutionOperands;
using kernels::cuda::ConvolutionPlan;
using kernels::cuda::ConvolutionProblem;
using kernels::cuda::MemoryRange;

// A tensor as doubles; zeros for the result.
std::vector<double> Read(CUdeviceptr address, DType dtype, int64_t count,
                         bool is_result) {
  std::vector<double> values(static_cast<size_t>(count), 0.0);
  for (int64_t i = 0; !is_result && i < count; ++i) {
    values[static_cast<size_t>(i)] =
        kernels::Load(PointerTo(address), dtype, i);
  }
  return values;
}

struct Tensors {
  std::vector<double> x, w, y;
};

// Adds every product of the convolution to the element of the result that it
// belongs to.
void AddProducts(const ConvolutionProblem& p, Tensors& t) {
  const auto visit = [&](int64_t xi, int64_t wi, int64_t yi) {
    double& x = t.x[static_cast<size_t>(xi)];
    double& w = t.w[static_cast<size_t>(wi)];
    double& y = t.y[static_cast<size_t>(yi)];
    switch (p.kind) {
      case ConvolutionKind::kForward:
        y += x * w;
        break;
      case ConvolutionKind::kInputGradient:
        x += y * w;
        break;
      case ConvolutionKind::kWeightGradient:
        w += y * x;
        break;
    }
  };
  const auto visit_window = [&](int64_t n, int64_t row, int64_t column,
                                int64_t u, int64_t v) {
    const int64_t i = row * p.stride + u - p.padding;
    const int64_t j = column * p.stride + v - p.padding;
    if (i < 0 || i >= p.h || j < 0 || j >= p.w) return;
    for (int64_t o = 0; o < p.o; ++o) {
      for (int64_t c = 0; c < p.c; ++c) {
        visit(((n * p.h + i) * p.w + j) * p.c + c,
              ((o * p.kh + u) * p.kw + v) * p.c + c,
              ((n * p.yh + row) * p.yw + column) * p.o + o);
      }
    }
  };
  for (int64_t n = 0; n < p.b; ++n) {
    for (int64_t row = 0; row < p.yh; ++row) {
      for (int64_t column = 0; column < p.yw; ++column) {
        for (int64_t u = 0; u < p.kh; ++u) {
          for (int64_t v = 0; v < p.kw; ++v) {
            visit_window(n, row, column, u, v);
          }
        }
      }
    }
  }
}

// Adds the bias and applies the relu, if there are any.
void ApplyEpilogue(const ConvolutionProblem& p, CUdeviceptr bias,
                   std::vector<double>& y) {
  for (size_t i = 0; i < y.size(); ++i) {
    if (p.has_bias) {
      y[i] += kernels::Load(PointerTo(bias), p.dtype,
                            static_cast<int64_t>(i) % p.o);
    }
    if (p.has_relu && y[i] < 0.0) y[i] = 0.0;
  }
}

// One operand of a convolution.
struct Operand {
  CUdeviceptr address;
  int64_t count;
  bool is_result;
};

// x, w, y
std::array<Operand, 3> OperandsOf(const ConvolutionProblem& p,
                                  const ConvolutionOperands& operands) {
  return {{{operands.x, p.b * p.h * p.w * p.c,
            p.kind == ConvolutionKind::kInputGradient},
           {operands.w, p.o * p.kh * p.kw * p.c,
            p.kind == ConvolutionKind::kWeightGradient},
           {operands.y, p.b * p.yh * p.yw * p.o,
            p.kind == ConvolutionKind::kForward}}};
}

void FillWorkspace(const MemoryRange& workspace) {
  std::memset(PointerTo(workspace.address), 0xFF, workspace.size_bytes);
}

void Compute(const ConvolutionProblem& p, const ConvolutionOperands& operands) {
  const auto [x, w, y] = OperandsOf(p, operands);
  const auto read = [&](const Operand& operand) {
    std::vector<double> values =
        Read(operand.address, p.dtype, operand.count, operand.is_result);
    if (p.allows_tf32)
      std::ranges::transform(values, values.begin(), RoundToTF32);
    return values;
  };
  Tensors tensors{read(x), read(w), read(y)};
  AddProducts(p, tensors);
  ApplyEpilogue(p, operands.bias, tensors.y);
  const auto write = [&](const Operand& operand,
                         const std::vector<double>& values) {
    for (int64_t i = 0; operand.is_result && i < operand.count; ++i) {
      kernels::Store(PointerTo(operand.address), p.dtype, i,
                     values[static_cast<size_t>(i)]);
    }
  };
  write(x, tensors.x);
  write(w, tensors.w);
  write(y, tensors.y);
}

class HostPlan : public ConvolutionPlan {
 public:
  HostPlan(std::shared_ptr<FakeDriver> driver,
           const ConvolutionProblem& problem, HostCandidate candidate)
      : driver_(std::move(driver)),
        p_(problem),
        candidate_(std::move(candidate)) {}

  size_t workspace_size_bytes() const override {
    return candidate_.workspace_size_bytes;
  }
  std::string name() const override { return candidate_.name; }

  void Launch(const ConvolutionOperands& operands, CUstream stream) override {
    if (candidate_.fails ||
        (candidate_.fails_in_capture && driver_->IsCaptured(stream))) {
      throw DeviceError("convolution: " + candidate_.name + " fails");
    }
    std::vector<MemoryRange> reads;
    std::vector<MemoryRange> writes = {
        {operands.workspace, candidate_.workspace_size_bytes}};
    if (p_.has_bias) {
      reads.push_back(
          {operands.bias, static_cast<size_t>(p_.o) * DTypeSize(p_.dtype)});
    }
    for (const Operand& operand : OperandsOf(p_, operands)) {
      (operand.is_result ? writes : reads)
          .push_back({operand.address, static_cast<size_t>(operand.count) *
                                           DTypeSize(p_.dtype)});
    }
    const CUresult result = driver_->RunOnHost(
        "convolution", stream, reads, writes,
        [p = p_, operands, workspace = writes[0]] {
          FillWorkspace(workspace);
          Compute(p, operands);
        },
        candidate_.time_us);
    if (result != CUDA_SUCCESS) {
      throw DeviceError("convolution: " + driver_->DescribeError(result));
    }
  }

 private:
  const std::shared_ptr<FakeDriver> driver_;
  const ConvolutionProblem p_;
  const HostCandidate candidate_;
};

}  // namespace

std::unique_ptr<kernels::cuda::ConvolutionLibrary> MakeHostConvolution(
    std::shared_ptr<FakeDriver> driver,
    HostCandidates<ConvolutionProblem> candidates, std::string version) {
  return std::make_unique<
      HostLibrary<kernels::cuda::ConvolutionLibrary, ConvolutionProblem,
                  ConvolutionPlan, HostPlan>>(
      std::move(driver), std::move(candidates), std::move(version));
}

}  // namespace replicant::testing
