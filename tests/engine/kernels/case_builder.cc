#include "tests/engine/kernels/case_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/graph/ops/elementwise.h"
#include "tests/support/tensor_values.h"

namespace replicant::testing {

using graph::Output;
using graph::VariableId;

Output CaseBuilder::Input(HostTensor value) {
  const std::string name = fmt::format("x{}", values_.size());
  const bool is_floating = value.dtype() == DType::kF32;
  const DType dtype = is_floating ? stored_ : value.dtype();
  const Output input = graph_.Input(name, dtype, value.shape());
  values_.emplace_back(name,
                       Values(dtype, value.shape(), ToDoubles(value.view())));
  return is_floating ? graph::Cast(input, floating_) : input;
}

Output CaseBuilder::Normal(const Shape& shape) {
  const Output x = Input(RandomNormal(DType::kF32, shape, values_.size()));
  differentiable_.push_back(x);
  return x;
}

Output CaseBuilder::Uniform(const Shape& shape, double low, double high) {
  const Output x =
      Input(RandomUniform(DType::kF32, shape, low, high, values_.size()));
  differentiable_.push_back(x);
  return x;
}

Output CaseBuilder::Distribution(int64_t rows, int64_t columns) {
  return Input(RandomDistribution(DType::kF32, rows, columns, values_.size()));
}

Output CaseBuilder::Whole(DType dtype, const Shape& shape, int64_t low,
                          int64_t high) {
  const HostTensor draws =
      RandomUniform(DType::kF64, shape, static_cast<double>(low),
                    static_cast<double>(high), values_.size());
  std::vector<double> values = ToDoubles(draws.view());
  for (double& v : values) v = std::floor(v);
  return Input(Values(dtype, shape, values));
}

VariableId CaseBuilder::Variable(const Shape& shape, double low, double high) {
  const std::string name = fmt::format("v{}", graph_.variables().size());
  return graph_.AddVariable(
      {.name = name,
       .dtype = floating_,
       .shape = shape,
       .initializer = [shape, low, high](RandomStream&,
                                         MutableTensorView view) {
         // the same in both dtypes
         const HostTensor values =
             RandomUniform(DType::kF32, shape, low, high, /*seed=*/17);
         const HostTensor cast =
             Values(view.dtype(), shape, ToDoubles(values.view()));
         std::copy(cast.bytes().begin(), cast.bytes().end(), view.data());
       }});
}

}  // namespace replicant::testing
