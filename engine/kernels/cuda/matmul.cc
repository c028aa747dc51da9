#include <fmt/format.h>

#include "engine/graph/passes/tf32.h"
#include "engine/kernels/cuda/cuda_kernels.h"
#include "engine/kernels/cuda/matmul_library.h"

// Matrix products by the library, with bias and relu in its epilogue, and
// batches of them.
namespace replicant::kernels::cuda {
namespace {

MatMulProblem MatMulOf(const KernelRequest& request) {
  const graph::Attributes& attributes = request.node.attributes;
  const bool transpose_a = attributes.Bool("transpose_a");
  const Shape& c = request.output().shape;
  // of BatchMatMul, the first dimension counts matrices
  const int rows = c.rank() - 2;
  return {.m = c[rows],
          .n = c[rows + 1],
          .k = request.input(0).shape[transpose_a ? rows : rows + 1],
          .batch = rows == 1 ? c[0] : 1,
          .transpose_a = transpose_a,
          .transpose_b = attributes.Bool("transpose_b"),
          .in = request.input(0).dtype,
          .out = request.output().dtype,
          .allows_tf32 = graph::AllowsTF32(request.node),
          .has_bias = request.node.inputs.size() > 2,
          .has_relu = attributes.Has("activation")};
}

class MatMulStep : public Step {
 public:
  MatMulStep(const MatMulProblem& problem, std::unique_ptr<MatMulPlan> plan,
             size_t workspace_offset, AddressFunction bias)
      : problem_(problem),
        plan_(std::move(plan)),
        workspace_offset_(workspace_offset),
        bias_(std::move(bias)) {}

  void Bind(const KernelBindings& bindings,
            const OperandRanges& /*ranges*/) override {
    operands_ = {.a = AddressOf(bindings.inputs[0]),
                 .b = AddressOf(bindings.inputs[1]),
                 .c = AddressOf(bindings.outputs[0])};
    if (bias_) operands_.bias = bias_(bindings);
    if (plan_->workspace_size_bytes() > 0) {
      operands_.workspace = AddressOf(bindings.scratch + workspace_offset_);
    }
  }
  void Launch(const Device& /*device*/, CUstream stream) override {
    plan_->Launch(operands_, stream);
  }
  LaunchDescription Describe() const override {
    const MatMulProblem& p = problem_;
    return {.name = fmt::format("matmul {}{}x{}x{}{}{}",
                                p.batch > 1 ? fmt::format("{}x", p.batch) : "",
                                p.m, p.k, p.n, p.has_bias ? " bias" : "",
                                p.has_relu ? " relu" : ""),
            .flops = 2.0 * static_cast<double>(p.batch * p.m) *
                     static_cast<double>(p.n * p.k),
            .unit = UnitOf(p.in, p.allows_tf32)};
  }

 private:
  const MatMulProblem problem_;
  const std::unique_ptr<MatMulPlan> plan_;
  const size_t workspace_offset_;
  const AddressFunction bias_;  // null without one
  MatMulOperands operands_;
};

void MakeMatMul(KernelBuilder& builder) {
  const MatMulProblem problem = MatMulOf(builder.request());
  if (problem.m == 0 || problem.n == 0 || problem.batch == 0) return;
  auto plan = builder.plans().Plan(problem);
  const size_t workspace = builder.AddWorkspace(plan->workspace_size_bytes());
  builder.Add(std::make_unique<MatMulStep>(
      problem, std::move(plan), workspace,
      problem.has_bias ? AddBias(builder) : nullptr));
}

std::string WhyNotMatMul(const KernelRequest& request) {
  if (std::string why = WhyNotF32OrBF16(request); !why.empty()) return why;
  const MatMulProblem problem = MatMulOf(request);
  if (problem.k == 0) return "its sums have no terms";
  return problem.has_bias ? WhyNotBias(request) : "";
}

}  // namespace

AddressFunction AddBias(KernelBuilder& builder) {
  const graph::TensorType& bias = builder.input(2);
  if (bias.dtype == builder.output().dtype) {
    return [](const KernelBindings& bindings) {
      return AddressOf(bindings.inputs[2]);
    };
  }
  const int64_t count = bias.shape.num_elements();
  const size_t rounded =
      builder.AddScratch(static_cast<size_t>(count) * sizeof(BFloat16));
  builder.Launch(RoundToBF16{}, count,
                 [rounded](RoundToBF16& b, const KernelBindings& bindings) {
                   b.x = In<float>(bindings, 2);
                   b.y = Scratch<BFloat16>(bindings, rounded);
                 });
  return [rounded](const KernelBindings& bindings) {
    return AddressOf(bindings.scratch + rounded);
  };
}

std::string WhyNotBias(const KernelRequest& request) {
  const graph::TensorType& bias = request.input(2);
  if (bias.dtype == request.output().dtype || bias.dtype == DType::kF32) {
    return {};
  }
  return "it takes a bias of f32 or of the result's dtype, got " +
         bias.ToString();
}

void AddMatMulKernels(CudaKernelTable& table) {
  table["MatMul"] = {&MakeMatMul, &WhyNotMatMul};
  table["BatchMatMul"] = {&MakeMatMul, &WhyNotMatMul};
}

}  // namespace replicant::kernels::cuda
