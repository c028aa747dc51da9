#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "base/thread.h"
#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/norm.h"
#include "engine/graph/ops/reduce.h"
#include "engine/kernels/backend.h"
#include "engine/runtime/executor.h"
#include "tests/support/tensor_values.h"

namespace replicant::kernels {
namespace {

using graph::Graph;
using graph::Output;

// Norms and their gradients on two threads, of four batches, so that a last bit
// that rarely differs is seen: where the mean of equal blocks, a power of two
// of them, lies in the middle between two floats.
std::vector<double> RunNorms() {
  const auto backend = MakeBackend("cpu", {.num_threads = 2});
  const Shape shape({8, 16, 32, 256});
  Graph graph(/*seed=*/0);
  const Output x = graph.Input("x", DType::kF32, shape);
  const Output weight = graph.Input("weight", DType::kF32, shape);
  const Output rows = graph.Input("rows", DType::kF32, Shape({8, 256}));
  const Output row = graph.Input("row", DType::kF32, Shape({256}));
  std::vector<Output> outputs;
  const auto add = [&](Output y, Output gamma) {
    const auto gradients =
        graph::Gradients(graph::ReduceSum(graph::Mul(y, weight)), {x, gamma});
    outputs.push_back(y);
    outputs.insert(outputs.end(), gradients.begin(), gradients.end());
  };
  for (const Output gamma : {row, rows}) {
    const graph::BatchNormOutputs norm = graph::BatchNorm(x, gamma, gamma);
    outputs.push_back(norm.mean);
    outputs.push_back(norm.variance);
    add(norm.y, gamma);
  }
  add(graph::LayerNorm(x, row, row), row);
  runtime::VariableStore store(*backend, /*seed=*/1);
  runtime::Executor plan(graph, {.outputs = outputs}, store);
  std::vector<double> values;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    for (const char* name : {"x", "weight", "rows", "row"}) {
      const auto input = plan.input(name);
      const HostTensor value =
          testing::RandomNormal(DType::kF32, input.shape(), seed);
      std::memcpy(input.data(), value.bytes().data(), value.size_bytes());
    }
    plan.Run();
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto more = testing::ToDoubles(plan.output(i));
      values.insert(values.end(), more.begin(), more.end());
    }
  }
  return values;
}

// On one processor the thread that is on it takes nearly all parts of a loop.
TEST(CpuNormTest, BitsDoNotDependOnWhichThreadWasFree) {
  const CpuSet cpus = CpuSet::OfThisThread();
  if (cpus.size() == 1) GTEST_SKIP() << "one processor";
  std::vector<double> of_one;
  std::thread([&] {
    SetThreadAffinity(CpuSet({cpus.cpus()[0]}));
    of_one = RunNorms();
  }).join();
  for (int i = 0; i < 3; ++i) {
    std::vector<double> got;
    std::thread([&] { got = RunNorms(); }).join();
    EXPECT_TRUE(got == of_one);
  }
}

}  // namespace
}  // namespace replicant::kernels
