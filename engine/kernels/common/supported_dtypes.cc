#include "engine/kernels/common/supported_dtypes.h"

#include <fmt/format.h>

namespace replicant::kernels {
namespace {

std::string WhyNot(const KernelRequest& request, bool takes_bf16) {
  const auto check = [&](const graph::TensorType& type) -> std::string {
    if (!graph::IsFloating(type.dtype) || type.dtype == DType::kF32 ||
        (takes_bf16 && type.dtype == DType::kBF16)) {
      return {};
    }
    return fmt::format("it takes {}, got {}",
                       takes_bf16 ? "f32 or bf16" : "f32", type.ToString());
  };
  for (size_t i = 0; i < request.node.inputs.size(); ++i) {
    std::string why = check(request.input(i));
    if (!why.empty()) return why;
  }
  for (const graph::TensorType& output : request.node.outputs) {
    std::string why = check(output);
    if (!why.empty()) return why;
  }
  return {};
}

}  // namespace

std::string WhyNotF32(const KernelRequest& request) {
  return WhyNot(request, /*takes_bf16=*/false);
}

std::string WhyNotF32OrBF16(const KernelRequest& request) {
  return WhyNot(request, /*takes_bf16=*/true);
}

}  // namespace replicant::kernels
