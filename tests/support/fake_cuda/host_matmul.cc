#include "tests/support/fake_cuda/host_matmul.h"

#include <array>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "engine/kernels/common/element.h"
#include "tests/support/fake_cuda/host_library.h"
#include "tests/support/fake_cuda/tf32.h"

namespace replicant::testing {
namespace {

using kernels::cuda::MatMulOperands;
using kernels::cuda::MatMulPlan;
using kernels::cuda::MatMulProblem;
using kernels::cuda::MemoryRange;

// Pair `i` of the batch.
void ComputeOne(const MatMulProblem& p, const MatMulOperands& operands,
                int64_t pair) {
  const auto load = [&](CUdeviceptr address, int64_t size, int64_t i) {
    const double value =
        kernels::Load(PointerTo(address), p.in, pair * size + i);
    return p.allows_tf32 ? RoundToTF32(value) : value;
  };
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = 0.0;
      for (int64_t k = 0; k < p.k; ++k) {
        sum += load(operands.a, p.m * p.k,
                    p.transpose_a ? k * p.m + i : i * p.k + k) *
               load(operands.b, p.k * p.n,
                    p.transpose_b ? j * p.k + k : k * p.n + j);
      }
      if (p.has_bias) sum += kernels::Load(PointerTo(operands.bias), p.out, j);
      if (p.has_relu && sum < 0.0) sum = 0.0;
      kernels::Store(PointerTo(operands.c), p.out, (pair * p.m + i) * p.n + j,
                     sum);
    }
  }
}

void FillWorkspace(const MemoryRange& workspace) {
  std::memset(PointerTo(workspace.address), 0xFF, workspace.size_bytes);
}

void Compute(const MatMulProblem& p, const MatMulOperands& operands) {
  for (int64_t pair = 0; pair < p.batch; ++pair) ComputeOne(p, operands, pair);
}

class HostPlan : public MatMulPlan {
 public:
  HostPlan(std::shared_ptr<FakeDriver> driver, const MatMulProblem& problem,
           HostCandidate candidate)
      : driver_(std::move(driver)),
        problem_(problem),
        candidate_(std::move(candidate)) {}

  size_t workspace_size_bytes() const override {
    return candidate_.workspace_size_bytes;
  }
  std::string name() const override { return candidate_.name; }

  void Launch(const MatMulOperands& operands, CUstream stream) override {
    if (candidate_.fails ||
        (candidate_.fails_in_capture && driver_->IsCaptured(stream))) {
      throw DeviceError("matmul: " + candidate_.name + " fails");
    }
    const MatMulProblem& p = problem_;
    const auto bytes = [](int64_t count, DType dtype) {
      return static_cast<size_t>(count) * DTypeSize(dtype);
    };
    std::vector<MemoryRange> reads = {
        {operands.a, bytes(p.batch * p.m * p.k, p.in)},
        {operands.b, bytes(p.batch * p.k * p.n, p.in)}};
    if (p.has_bias) reads.push_back({operands.bias, bytes(p.n, p.out)});
    const std::array<MemoryRange, 2> writes = {
        {{operands.c, bytes(p.batch * p.m * p.n, p.out)},
         {operands.workspace, candidate_.workspace_size_bytes}}};
    const CUresult result = driver_->RunOnHost(
        "matmul", stream, reads, writes,
        [p, operands, workspace = writes[1]] {
          FillWorkspace(workspace);
          Compute(p, operands);
        },
        candidate_.time_us);
    if (result != CUDA_SUCCESS) {
      throw DeviceError("matmul: " + driver_->DescribeError(result));
    }
  }

 private:
  const std::shared_ptr<FakeDriver> driver_;
  const MatMulProblem problem_;
  const HostCandidate candidate_;
};

}  // namespace

std::unique_ptr<kernels::cuda::MatMulLibrary> MakeHostMatMul(
    std::shared_ptr<FakeDriver> driver,
    HostCandidates<MatMulProblem> candidates, std::string version) {
  return std::make_unique<HostLibrary<kernels::cuda::MatMulLibrary,
                                      MatMulProblem, MatMulPlan, HostPlan>>(
      std::move(driver), std::move(candidates), std::move(version));
}

}  // namespace replicant::testing
