#include "tests/core/kernels/op_parity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/graph/gradients.h"
#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/reduce.h"
#include "core/runtime/executor.h"
#include "tests/support/tensor_values.h"

namespace replicant::testing {
namespace {

using graph::Output;
using kernels::Backend;
using kernels::MakeBackend;

// What a run gave: the outputs of the op, its gradients, and the variables that
// it updated.
struct Results {
  std::vector<std::vector<double>> values;
  std::vector<Shape> shapes;
};

// The gradients of sum_i w_i y_i for fixed w, with respect to all inputs.
std::vector<Output> GradientsOf(CaseBuilder& builder, Output y) {
  const HostTensor weights =
      RandomUniform(DType::kF32, y.shape(), -1.0, 1.0, /*seed=*/99);
  const HostTensor cast =
      Values(y.dtype(), y.shape(), ToDoubles(weights.view()));
  const Output loss =
      graph::ReduceSum(graph::Mul(y, builder.graph().Constant(cast.view())));
  return graph::Gradients(loss, builder.differentiable());
}

Results RunCase(const OpCase& op_case, CaseBuilder& builder,
                graph::Precision precision, Backend& backend) {
  std::vector<Output> fetched = op_case.build(builder);
  if (op_case.has_gradient) {
    for (const Output& g : GradientsOf(builder, fetched[0])) {
      fetched.push_back(g);
    }
  }
  runtime::PlanSpec spec;
  for (const Output& output : fetched) {
    const bool is_update = !output.producer().updates.empty();
    (is_update ? spec.updates : spec.outputs).push_back(output);
  }
  runtime::VariableStore store(backend, /*seed=*/1);
  runtime::Executor plan(builder.graph(), spec, store,
                         {.passes = {.precision = precision}});
  for (const auto& [name, value] : builder.values()) {
    const auto view = plan.input(name);
    std::memcpy(view.data(), value.bytes().data(), value.size_bytes());
  }
  plan.Run();

  Results results;
  for (size_t i = 0; i < plan.num_outputs(); ++i) {
    results.values.push_back(ToDoubles(plan.output(i)));
    results.shapes.push_back(plan.output(i).shape());
  }
  for (const auto& [name, variable] : store.variables()) {
    results.values.push_back(ToDoubles(store.Get(name).view()));
    results.shapes.push_back(variable.spec.shape);
  }
  return results;
}

Results RunCase(const OpCase& op_case, DType floating, Backend& backend) {
  CaseBuilder builder(floating);
  return RunCase(op_case, builder, graph::Precision::kF32, backend);
}

// With everything that goes in stored as bf16.
Results RunInBF16(const OpCase& op_case, Backend& backend) {
  CaseBuilder builder(DType::kF32, DType::kBF16);
  return RunCase(op_case, builder, graph::Precision::kBF16, backend);
}

// Largest difference relative to the largest value of the reference, or to 1
// where all of it is smaller than 1e-3 (a gradient that cancels).
double RelativeError(const std::vector<double>& x,
                     const std::vector<double>& reference) {
  double scale = 0.0;
  for (const double r : reference) scale = std::max(scale, std::fabs(r));
  if (scale < 1e-3) scale = 1.0;
  double error = 0.0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double distance = std::fabs(x[i] - reference[i]) / scale;
    // written so that NaN counts as the largest error
    if (!(distance <= error)) error = distance;
  }
  return error;
}

double Scaled(double tolerance) {
  const char* scale = std::getenv("REPLICANT_TOL_SCALE");
  return scale == nullptr ? tolerance : tolerance * std::atof(scale);
}

// The rounding errors of a sum of n terms in f32 add up like a random walk,
// sqrt(n) * 2^-24 of the terms' size. Four times that is hardly ever reached;
// another factor 4 covers functions that are exact to 4 units in the last place
// and an op's gradient, which is a few ops.
double Tolerance(const OpCase& op_case) {
  return Scaled(16.0 * std::sqrt(op_case.length) * 0x1p-24);
}

// Both round at the same places. Where f32 and double lie on two sides of the
// middle between two values of bf16, these are 2^-8 of each other apart; an op
// and its gradient round one after the other four times at most. A fused bias
// or activation saves one of them.
double BF16Tolerance() { return Scaled(4.0 * 0x1p-8); }

void ExpectNear(const Results& got, const Results& want, double tolerance) {
  ASSERT_EQ(got.values.size(), want.values.size());
  for (size_t i = 0; i < want.values.size(); ++i) {
    EXPECT_EQ(got.shapes[i], want.shapes[i]);
    EXPECT_LE(RelativeError(got.values[i], want.values[i]), tolerance)
        << "result " << i << " of shape " << want.shapes[i].ToString();
  }
}

}  // namespace

void ExpectMatchesReference(const OpCase& op_case, Backend& backend) {
  const auto reference = MakeBackend("reference");
  ExpectNear(RunCase(op_case, DType::kF32, backend),
             RunCase(op_case, DType::kF64, *reference), Tolerance(op_case));
}

void ExpectMatchesReferenceInBF16(const OpCase& op_case, Backend& backend) {
  const auto reference = MakeBackend("reference");
  ExpectNear(RunInBF16(op_case, backend), RunInBF16(op_case, *reference),
             BF16Tolerance());
}

void ExpectSameBits(const OpCase& op_case, Backend& backend) {
  EXPECT_EQ(RunCase(op_case, DType::kF32, backend).values,
            RunCase(op_case, DType::kF32, backend).values);
}

}  // namespace replicant::testing
