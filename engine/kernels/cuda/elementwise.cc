#include <fmt/format.h>

#include "engine/kernels/cuda/cuda_kernels.h"
#include "engine/kernels/cuda/elementwise_source.h"

// Elementwise ops and fused chains of them, as generated kernels.
namespace replicant::kernels::cuda {
namespace {

using graph::ScalarProgram;

class ElementwiseStep : public Step {
 public:
  ElementwiseStep(std::shared_ptr<const GeneratedFunction> function,
                  int64_t count, int64_t lanes, size_t num_instructions)
      : function_(std::move(function)),
        count_(count),
        num_instructions_(num_instructions),
        launch_(LaunchOf(function_->get(), count / lanes, /*is_row=*/false)) {
    launch_.argument = &argument_;
    launch_.argument_size_bytes = sizeof argument_;
  }
  ElementwiseStep(const ElementwiseStep&) = delete;
  ElementwiseStep& operator=(const ElementwiseStep&) = delete;

  void Bind(const KernelBindings& bindings,
            const OperandRanges& ranges) override {
    for (size_t i = 0; i < bindings.inputs.size(); ++i) {
      argument_.inputs[i] = bindings.inputs[i];
    }
    argument_.output = bindings.outputs[0];
    launch_.reads = ranges.reads;
    launch_.writes = ranges.writes;
  }
  void Launch(const Device& device, CUstream stream) override {
    device.Check(device.libraries().driver->LaunchKernel(launch_, stream),
                 "elementwise kernel");
  }
  LaunchDescription Describe() const override {
    return {.kind = LaunchDescription::Kind::kGenerated,
            .name = fmt::format("elementwise of {} ops", num_instructions_),
            .flops = static_cast<double>(num_instructions_) *
                     static_cast<double>(count_)};
  }

 private:
  const std::shared_ptr<const GeneratedFunction> function_;
  const int64_t count_;
  const size_t num_instructions_;
  ElementwiseArgument argument_{};
  KernelLaunch launch_;
};

void MakeElementwise(KernelBuilder& builder) {
  builder.ShareElements();
  const int64_t count = builder.output().shape.num_elements();
  if (count == 0) return;
  std::vector<graph::TensorType> inputs;
  for (size_t i = 0; i < builder.node().inputs.size(); ++i) {
    inputs.push_back(builder.input(i));
  }
  const ScalarProgram& program = builder.attributes().Program("program");
  const GeneratedSource source =
      ElementwiseSource(program, inputs, builder.output());
  builder.Add(std::make_unique<ElementwiseStep>(
      builder.functions().Get(source.text, kElementwiseFunction), count,
      source.lanes, program.instructions.size()));
}

std::string WhyNotElementwise(const KernelRequest& request) {
  if (std::string why = WhyNotF32OrBF16(request); !why.empty()) return why;
  for (const ScalarProgram::Instruction& instruction :
       request.node.attributes.Program("program").instructions) {
    if (instruction.dtype == DType::kF64) return "it computes in f64";
  }
  return {};
}

}  // namespace

void AddElementwiseKernels(CudaKernelTable& table) {
  for (int i = 0; i < graph::kNumScalarOps; ++i) {
    table[graph::ScalarOpName(static_cast<graph::ScalarOp>(i))] = {
        &MakeElementwise, &WhyNotElementwise};
  }
  table["FusedElementwise"] = {&MakeElementwise, &WhyNotElementwise};
}

}  // namespace replicant::kernels::cuda
