#include "engine/kernels/common/host_kernel.h"

#include <utility>

namespace replicant::kernels {
namespace {

// Whether output 0 may overwrite input `input`: each element of the result may
// only depend on the same element of that input.
bool IsElementByElement(const KernelRequest& request, size_t input) {
  const std::string_view op = request.node.op->name;
  if (op == "Reshape" || op == "StopGradient" || op == "Identity") return true;
  return request.node.op->is_elementwise &&
         request.input(input).shape == request.output().shape &&
         DTypeSize(request.input(input).dtype) ==
             DTypeSize(request.output().dtype);
}

class HostKernel : public Kernel {
 public:
  HostKernel(const KernelRequest& request, RunFunction run)
      : run_(std::move(run)) {
    for (size_t i = 0; i < request.node.inputs.size(); ++i) {
      can_share_.push_back(IsElementByElement(request, i));
    }
  }

  bool CanShare(int input, int output) const override {
    return output == 0 && can_share_[static_cast<size_t>(input)];
  }
  void Bind(const KernelBindings& bindings) override {
    operands_ = {.inputs = bindings.inputs, .outputs = bindings.outputs};
  }
  void Launch(Stream& /*stream*/) override { run_(operands_); }

 private:
  RunFunction run_;
  std::vector<bool> can_share_;
  Operands operands_;
};

}  // namespace

std::unique_ptr<Kernel> MakeHostKernel(const KernelRequest& request,
                                       RunFunction run) {
  return std::make_unique<HostKernel>(request, std::move(run));
}

bool EvaluateOnHost(const HostKernelTable& table, const KernelRequest& request,
                    std::span<const TensorView> inputs,
                    std::span<const MutableTensorView> outputs) {
  const auto row = table.find(request.node.op->name);
  if (row == table.end()) return false;
  Operands operands;
  for (const TensorView& input : inputs) {
    operands.inputs.push_back(input.data());
  }
  for (const MutableTensorView& output : outputs) {
    operands.outputs.push_back(output.data());
  }
  row->second(request)(operands);
  return true;
}

}  // namespace replicant::kernels
