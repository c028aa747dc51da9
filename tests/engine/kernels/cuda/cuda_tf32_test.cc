// Precision tf32 on the CUDA backend, and what it means elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/graph/gradients.h"
#include "engine/graph/ops/conv.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/reduce.h"
#include "engine/runtime/executor.h"
#include "tests/support/fake_cuda/fake_backend.h"

namespace replicant::kernels {
namespace {

using graph::Output;
using graph::Precision;
using testing::FakeDriver;
using ::testing::IsEmpty;

// f32 keeps it, and TF32 rounds it to 1: half of its last bit is 2^-11.
constexpr float kFine = 1.0F + 0x1p-12F;
// TF32 keeps it.
constexpr float kCoarse = 1.0F + 0x1p-10F;

class Tf32Test : public ::testing::Test {
 protected:
  void TearDown() override {
    cuda_.reset();
    EXPECT_THAT(driver_->problems(), IsEmpty());
    EXPECT_THAT(driver_->live(), IsEmpty());
  }

  // The first element of a product of a tensor of `value` with ones.
  using Build = Output (*)(graph::Graph& g, Output x);
  static float Product(Backend& backend, Build build, const Shape& shape,
                       float value, Precision precision) {
    graph::Graph g;
    const Output x = g.Input("x", DType::kF32, shape);
    runtime::VariableStore store(backend, /*seed=*/1);
    runtime::Executor plan(g, {.outputs = {build(g, x)}, .updates = {}}, store,
                           {.passes = {.precision = precision}});
    std::ranges::fill(plan.input("x").Span<float>(), value);
    plan.Run();
    return plan.output(0).Span<float>()[0];
  }

  const std::shared_ptr<FakeDriver> driver_ = std::make_shared<FakeDriver>();
  std::unique_ptr<Backend> cuda_ = testing::MakeFakeCudaBackend(driver_);
};

Output Ones(graph::Graph& g, const Shape& shape) {
  return graph::Exp(g.Input("zeros", DType::kF32, shape));
}

struct Case {
  const char* name;
  Shape shape;
  Output (*build)(graph::Graph& g, Output x);
};

std::vector<Case> Cases() {
  return {
      {"MatMul",
       {2, 1},
       [](graph::Graph& g, Output x) {
         return graph::MatMul(x, Ones(g, {1, 2}));
       }},
      {"BatchMatMul",
       {3, 2, 1},
       [](graph::Graph& g, Output x) {
         return graph::BatchMatMul(x, Ones(g, {3, 1, 2}));
       }},
      {"Conv2d",
       {1, 3, 3, 1},
       [](graph::Graph& g, Output x) {
         return graph::Conv2d(x, Ones(g, {2, 1, 1, 1}));
       }},
      // a bias fused into the product is not rounded, nor is the sum
      {"ConvolutionWithABias",
       {1, 3, 3, 1},
       [](graph::Graph& g, Output x) {
         return graph::Relu(graph::Add(graph::Conv2d(x, Ones(g, {2, 1, 1, 1})),
                                       g.Input("bias", DType::kF32, {2})));
       }},
      // gradients are products, too: dw = x^T 1
      {"GradientOfMatMul", {1, 2}, [](graph::Graph& g, Output x) {
         const Output w = g.Input("w", DType::kF32, {2, 3});
         return graph::Gradients(graph::ReduceSum(graph::MatMul(x, w)), {w})[0];
       }}};
}

TEST_F(Tf32Test, ProductsRoundTheirOperands) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(Product(*cuda_, c.build, c.shape, kFine, Precision::kF32), kFine);
    EXPECT_EQ(Product(*cuda_, c.build, c.shape, kFine, Precision::kTF32), 1.0F);
    EXPECT_EQ(Product(*cuda_, c.build, c.shape, kCoarse, Precision::kTF32),
              kCoarse);
  }
}

TEST_F(Tf32Test, OtherOpsStayF32) {
  EXPECT_EQ(Product(
                *cuda_,
                [](graph::Graph& /*g*/, Output x) { return graph::Square(x); },
                {2, 2}, kFine, Precision::kTF32),
            kFine * kFine);
}

// TF32 is a permission: who has none computes in f32.
TEST_F(Tf32Test, HostBackendsComputeInF32) {
  for (const char* name : {"reference", "cpu"}) {
    const auto backend = MakeBackend(name);
    for (const Case& c : Cases()) {
      SCOPED_TRACE(std::string(name) + " " + c.name);
      EXPECT_EQ(Product(*backend, c.build, c.shape, kFine, Precision::kTF32),
                kFine);
    }
  }
}

}  // namespace
}  // namespace replicant::kernels
