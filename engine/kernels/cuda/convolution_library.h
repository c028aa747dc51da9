#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/tensor/dtype.h"

namespace replicant::kernels::cuda {

// The product of a convolution layer to compute.
enum class ConvolutionKind { kForward, kInputGradient, kWeightGradient };

// y = x * w of graph/ops/conv.h or one of its adjoints, with channels last:
//
//   x  [B, H, W, C]    dx for kInputGradient
//   w  [O, KH, KW, C]  dw for kWeightGradient; not the graph's order
//   y  [B, YH, YW, O]  dy for both gradients
struct ConvolutionProblem {
  bool operator==(const ConvolutionProblem&) const = default;

  ConvolutionKind kind = ConvolutionKind::kForward;
  int64_t b = 0, h = 0, w = 0, c = 0;  // all positive
  int64_t o = 0, kh = 0, kw = 0;
  int64_t yh = 0, yw = 0;
  int64_t stride = 1, padding = 0;
  DType dtype = DType::kF32;  // of all tensors: f32 or bf16
  // Operands of f32 may be rounded to TF32.
  bool allows_tf32 = false;
  // kForward in bf16 or TF32 only: a bias is added, then a relu applied, before
  // the result is rounded. No relu without a bias.
  bool has_bias = false;
  bool has_relu = false;
};

struct ConvolutionOperands {
  CUdeviceptr x = 0, w = 0, y = 0;
  CUdeviceptr bias = 0;       // [O], if has_bias
  CUdeviceptr workspace = 0;  // workspace_size_bytes()
};

// A library's choice for a problem, for plan reports.
struct ConvolutionChoice {
  int64_t engine = -1;  // the library's number for it
  // Configurations of engines that the library named as the best for the
  // problem.
  int64_t num_candidates = 0;
  // Operands of f32 are rounded to TF32 or coarser.
  bool rounds_f32 = false;
};

// One problem, ready to run.
//
// Thread-safety: one thread at a time.
class ConvolutionPlan {
 public:
  virtual ~ConvolutionPlan() = default;

  virtual size_t workspace_size_bytes() const = 0;
  // Names the plan among those for its problem: the same in every process with
  // this version of the library, and without tabs. Empty if it is the only one.
  virtual std::string name() const { return {}; }
  virtual ConvolutionChoice choice() const { return {}; }
  // Throws DeviceError.
  virtual void Launch(const ConvolutionOperands& operands, CUstream stream) = 0;
};

// Plans convolutions on the device of the current context.
//
// Thread-safety: any thread.
class ConvolutionLibrary {
 public:
  virtual ~ConvolutionLibrary() = default;

  // Null if the library has no engine for the problem. Throws DeviceError if
  // the library is missing.
  virtual std::unique_ptr<ConvolutionPlan> Plan(
      const ConvolutionProblem& problem) = 0;
  // Up to `max` plans with different names, the best first by the library's
  // estimate: the first is the result of Plan(). Throws as Plan() does.
  virtual std::vector<std::unique_ptr<ConvolutionPlan>> Candidates(
      const ConvolutionProblem& problem, int max);
  // The candidate with this name; null if the library has none. Throws as
  // Plan() does.
  virtual std::unique_ptr<ConvolutionPlan> PlanNamed(
      const ConvolutionProblem& problem, const std::string& name);
  // "cuDNN 9.19.0"; empty if unknown. Throws as Plan() does.
  virtual std::string version() { return {}; }
};

// cuDNN 9: the engines of its heuristics that support the problem within a
// workspace of 256 MiB, summing in f32. Problems in f32 take no engine that
// rounds their operands unless they allow TF32. Where there are engines whose
// results have the same bits in each run, as cuDNN reports, only these are
// taken. The library is loaded for the first plan, so that workloads without
// convolutions run without it.
//
// With `device_properties` (JSON, as cuDNN describes a device) plans are made
// for that device instead, which need not exist here; they cannot be launched.
std::unique_ptr<ConvolutionLibrary> MakeCudnn(
    std::string device_properties = {});

}  // namespace replicant::kernels::cuda
