#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/graph/ops/random.h"
#include "engine/runtime/executor.h"
#include "tests/support/fake_cuda/fake_backend.h"
#include "tests/support/tensor_values.h"

namespace replicant::kernels {
namespace {

using graph::Output;

// Uniform and whole numbers of one step, from row `first_row` + 4.
std::vector<std::vector<double>> Draw(Backend& backend, DType dtype,
                                      int64_t step, int64_t first_row) {
  graph::Graph g(/*seed=*/11);
  const auto options = [&](const char* name) {
    return graph::RandomOptions{
        .name = name,
        .step = g.Scalar(static_cast<double>(step), DType::kI64),
        .first_row = first_row,
        .row_offset = g.Scalar(4, DType::kI64)};
  };
  const Output uniform =
      graph::RandomUniform(options("uniform"), dtype, Shape({9, 7}));
  const Output whole =
      graph::RandomInt(options("whole"), Shape({9, 2}), -1000, 1000000);
  runtime::VariableStore store(backend, /*seed=*/1);
  runtime::Executor plan(g, {.outputs = {uniform, whole}}, store);
  plan.Run();
  return {testing::ToDoubles(plan.output(0)),
          testing::ToDoubles(plan.output(1))};
}

// The numbers of a replica do not depend on its backend.
TEST(CudaRandomTest, UniformAndWholeNumbersHaveTheBitsOfTheReference) {
  const auto reference = MakeBackend("reference");
  const auto cuda =
      testing::MakeFakeCudaBackend(std::make_shared<testing::FakeDriver>());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t step : {int64_t{0}, int64_t{1} << 33}) {
      for (const int64_t first_row : {0, 1000}) {
        EXPECT_EQ(Draw(*cuda, dtype, step, first_row),
                  Draw(*reference, dtype, step, first_row));
      }
    }
  }
}

}  // namespace
}  // namespace replicant::kernels
