#include "tests/engine/kernels/op_parity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"
#include "engine/runtime/executor.h"
#include "tests/support/tensor_values.h"

namespace replicant::testing {
namespace {

using graph::Output;
using kernels::Backend;
using kernels::MakeBackend;

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

CaseResults RunCase(const OpCase& op_case, CaseBuilder& builder,
                    const graph::PassOptions& passes, Backend& backend) {
  const CaseProgram program = BuildCase(op_case, builder);
  runtime::VariableStore store(backend, /*seed=*/1);
  runtime::Executor plan(
      builder.graph(), {.outputs = program.outputs, .updates = program.updates},
      store, {.passes = passes});
  for (const auto& [name, value] : builder.values()) {
    const auto view = plan.input(name);
    std::memcpy(view.data(), value.bytes().data(), value.size_bytes());
  }
  plan.Run();

  CaseResults results;
  for (size_t i = 0; i < plan.num_outputs(); ++i) results.Add(plan.output(i));
  for (const auto& [name, variable] : store.variables()) {
    results.Add(store.Get(name).view());
  }
  return results;
}

CaseResults RunCase(const OpCase& op_case, DType floating, Backend& backend) {
  CaseBuilder builder(floating);
  return RunCase(op_case, builder, {}, backend);
}

CaseResults RunCase(const OpCase& op_case, const graph::PassOptions& passes,
                    Backend& backend) {
  CaseBuilder builder = BuilderFor(passes.precision);
  return RunCase(op_case, builder, passes, backend);
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

void ExpectNear(const CaseResults& got, const CaseResults& want,
                double tolerance) {
  ASSERT_EQ(got.values.size(), want.values.size());
  for (size_t i = 0; i < want.values.size(); ++i) {
    EXPECT_EQ(got.shapes[i], want.shapes[i]);
    EXPECT_LE(RelativeError(got.values[i], want.values[i]), tolerance)
        << "result " << i << " of shape " << want.shapes[i].ToString();
  }
}

}  // namespace

CaseProgram BuildCase(const OpCase& op_case, CaseBuilder& builder) {
  std::vector<Output> fetched = op_case.build(builder);
  if (op_case.has_gradient) {
    for (const Output& g : GradientsOf(builder, fetched[0])) {
      fetched.push_back(g);
    }
  }
  CaseProgram program;
  for (const Output& output : fetched) {
    const bool is_update = !output.producer().updates.empty();
    (is_update ? program.updates : program.outputs).push_back(output);
  }
  return program;
}

void CaseResults::Add(TensorView tensor) {
  values.push_back(ToDoubles(tensor));
  shapes.push_back(tensor.shape());
}

CaseBuilder BuilderFor(graph::Precision precision) {
  const bool is_bf16 = precision == graph::Precision::kBF16;
  return {DType::kF32, is_bf16 ? DType::kBF16 : DType::kF32};
}

void ExpectMatchesReference(const OpCase& op_case,
                            const graph::PassOptions& passes,
                            const CaseResults& got) {
  const auto reference = MakeBackend("reference");
  if (passes.precision == graph::Precision::kBF16) {
    ExpectNear(got, RunCase(op_case, passes, *reference), BF16Tolerance());
  } else {
    ExpectNear(got, RunCase(op_case, DType::kF64, *reference),
               Tolerance(op_case));
  }
}

void ExpectMatchesReference(const OpCase& op_case, Backend& backend) {
  ExpectMatchesReference(op_case, {}, RunCase(op_case, DType::kF32, backend));
}

void ExpectMatchesReferenceInBF16(const OpCase& op_case, Backend& backend) {
  const graph::PassOptions bf16{.precision = graph::Precision::kBF16};
  ExpectMatchesReference(op_case, bf16, RunCase(op_case, bf16, backend));
}

void ExpectSameBits(const OpCase& op_case, Backend& backend) {
  EXPECT_EQ(RunCase(op_case, DType::kF32, backend).values,
            RunCase(op_case, DType::kF32, backend).values);
}

void ExpectPassChangesNoBit(const OpCase& op_case, const std::string& pass,
                            Backend& backend) {
  for (const graph::Precision precision :
       {graph::Precision::kF32, graph::Precision::kBF16}) {
    SCOPED_TRACE(precision == graph::Precision::kF32 ? "f32" : "bf16");
    EXPECT_EQ(RunCase(op_case, {.precision = precision}, backend).values,
              RunCase(op_case, {.off = {pass}, .precision = precision}, backend)
                  .values);
  }
}

}  // namespace replicant::testing
