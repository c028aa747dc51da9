#include "tests/support/graph_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"

namespace replicant::testing {

using graph::Output;

GraphRunner::GraphRunner(const std::string& backend, uint64_t seed)
    : backend_(kernels::MakeBackend(backend)),
      store_(std::make_unique<runtime::VariableStore>(*backend_, seed)),
      graph_(seed) {}

Output GraphRunner::Input(const std::string& name, HostTensor value) {
  const Output input = graph_.Input(name, value.dtype(), value.shape());
  values_.emplace(name, std::move(value));
  return input;
}

std::unique_ptr<runtime::Executor> GraphRunner::Compile(
    const runtime::PlanSpec& spec, const runtime::CompileOptions& options) {
  auto executor =
      std::make_unique<runtime::Executor>(graph_, spec, *store_, options);
  for (const auto& [name, value] : values_) {
    const MutableTensorView view = executor->input(name);
    if (view.size_bytes() == 0) continue;
    std::memcpy(view.data(), value.bytes().data(), value.size_bytes());
  }
  return executor;
}

HostTensor GraphRunner::EvalTensor(Output output,
                                   const runtime::CompileOptions& options) {
  const auto executor = Compile({.outputs = {output}}, options);
  executor->Run();
  return HostTensor::Clone(executor->output(0));
}

std::vector<double> GraphRunner::Eval(Output output) {
  return ToDoubles(EvalTensor(output).view());
}

double GraphRunner::MaxGradientError(Output output,
                                     const std::vector<Output>& wrt,
                                     double step) {
  const Output weights = graph_.Constant(
      RandomUniform(DType::kF64, output.shape(), -1.0, 1.0, /*seed=*/99)
          .view());
  const Output loss = graph::ReduceSum(graph::Mul(output, weights));
  const std::vector<Output> gradients = graph::Gradients(loss, wrt);
  std::vector<Output> fetched = {loss};
  fetched.insert(fetched.end(), gradients.begin(), gradients.end());
  const auto executor = Compile({.outputs = fetched});

  executor->Run();
  std::vector<std::vector<double>> symbolic;
  double largest = 1.0;
  for (size_t i = 1; i < fetched.size(); ++i) {
    symbolic.push_back(ToDoubles(executor->output(i)));
    for (const double g : symbolic.back()) {
      largest = std::max(largest, std::fabs(g));
    }
  }

  const auto loss_at = [&](double& x, double value) {
    x = value;
    executor->Run();
    return executor->output(0).Span<double>()[0];
  };
  double error = 0.0;
  for (size_t i = 0; i < wrt.size(); ++i) {
    const auto elements =
        executor->input(wrt[i].producer().name).Span<double>();
    REPLICANT_CHECK_EQ(elements.size(), symbolic[i].size());
    for (size_t k = 0; k < elements.size(); ++k) {
      const double x = elements[k];
      const double difference =
          loss_at(elements[k], x + step) - loss_at(elements[k], x - step);
      elements[k] = x;
      const double numeric = difference / (2.0 * step);
      // written so that NaN counts as the largest error
      const double distance = std::fabs(symbolic[i][k] - numeric) / largest;
      if (!(distance <= error)) error = distance;
    }
  }
  return error;
}

}  // namespace replicant::testing
