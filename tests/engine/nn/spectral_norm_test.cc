#include "engine/nn/spectral_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/graph_runner.h"

namespace replicant::nn {
namespace {

using testing::GraphRunner;
using testing::ToDoubles;
using testing::Values;
using V = std::vector<double>;

// Each run continues from the vectors of the last one, so that inference
// reaches a largest singular value of one.
TEST(SpectralNormTest, RunsConvergeToTheLargestSingularValue) {
  GraphRunner runner;
  const Graph::Scope scope(runner.graph(), "conv");
  const SpectralNorm norm(runner.graph(), Shape({2, 1, 1, 2}), {}, DType::kF64);
  // asked for before the update is added: reads what a run finds
  const Output inferred = norm.Infer();
  std::vector<Output> updates;
  const Output trained = norm.Train(&updates);
  const auto plan = runner.Compile({.outputs = {trained}, .updates = updates});
  // singular values 4 and 2
  runner.store().Set(
      "conv/weight_orig",
      Values(DType::kF64, Shape({2, 1, 1, 2}), {4, 0, 0, 2}).view());
  for (int i = 0; i < 40; ++i) plan->Run();
  const V last = ToDoubles(plan->output(0));
  const V fixed = runner.Eval(inferred);
  const V expected = {1, 0, 0, 0.5};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(last[i], expected[i], 1e-12);
    EXPECT_NEAR(fixed[i], expected[i], 1e-12);
  }
  EXPECT_NEAR(
      std::fabs(ToDoubles(runner.store().Get("conv/weight_u").view())[0]), 1.0,
      1e-12);
}

TEST(SpectralNormTest, VectorsStartAtRandomWithNormOne) {
  GraphRunner runner;
  const SpectralNorm norm(runner.graph(), Shape({3, 5}));
  runner.store().Declare(runner.graph());
  for (const char* name : {"weight_u", "weight_v"}) {
    double squares = 0.0;
    for (const double x : ToDoubles(runner.store().Get(name).view())) {
      squares += x * x;
    }
    EXPECT_NEAR(squares, 1.0, 1e-6) << name;
  }
}

}  // namespace
}  // namespace replicant::nn
