#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/tensor/dtype.h"
#include "engine/kernels/cuda/driver.h"

namespace replicant::kernels::cuda {

// c = epilogue(op(a) op(b)) for each of `batch` pairs of matrices that lie one
// after another, row-major; see graph/ops/matmul.h, linalg.h.
struct MatMulProblem {
  bool operator==(const MatMulProblem&) const = default;

  int64_t m = 0, n = 0, k = 0;  // all positive
  int64_t batch = 1;            // positive
  bool transpose_a = false;
  bool transpose_b = false;
  DType in = DType::kF32;   // of a and b: f32 or bf16
  DType out = DType::kF32;  // of c and the bias: `in`, or f32 of bf16 operands
  // Operands of f32 may be rounded to TF32.
  bool allows_tf32 = false;
  bool has_bias = false;  // of a batch of 1
  bool has_relu = false;
};

struct MatMulOperands {
  CUdeviceptr a = 0, b = 0, c = 0;
  CUdeviceptr bias = 0;       // [n], if has_bias
  CUdeviceptr workspace = 0;  // workspace_size_bytes()
};

// One problem, ready to run.
//
// Thread-safety: one thread at a time.
class MatMulPlan {
 public:
  virtual ~MatMulPlan() = default;

  virtual size_t workspace_size_bytes() const = 0;
  // Names the plan among those for its problem: the same in every process with
  // this version of the library, and without tabs. Empty if it is the only one.
  virtual std::string name() const { return {}; }
  // Throws DeviceError.
  virtual void Launch(const MatMulOperands& operands, CUstream stream) = 0;
};

// Plans matrix products on the device of the current context.
//
// Thread-safety: any thread.
class MatMulLibrary {
 public:
  virtual ~MatMulLibrary() = default;

  // Throws DeviceError if there is no algorithm for the problem.
  virtual std::unique_ptr<MatMulPlan> Plan(const MatMulProblem& problem) = 0;
  // Up to `max` plans with different names, the best first by the library's
  // estimate: the first is the result of Plan(). Throws as Plan() does.
  virtual std::vector<std::unique_ptr<MatMulPlan>> Candidates(
      const MatMulProblem& problem, int max);
  // The candidate with this name; null if the library has none. Throws as
  // Plan() does.
  virtual std::unique_ptr<MatMulPlan> PlanNamed(const MatMulProblem& problem,
                                                const std::string& name);
  // "cuBLASLt 13.1.0"; empty if unknown.
  virtual std::string version() { return {}; }
};

// cuBLASLt, found at run time: the algorithms of its heuristics. Sums in f32.
// Throws DeviceError if the library is missing; its handle is made for the
// first plan, which needs a device.
std::unique_ptr<MatMulLibrary> LoadCublasLt();

}  // namespace replicant::kernels::cuda
