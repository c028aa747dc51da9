// Whole steps of ResNet-50 on the CUDA backend, without a GPU
// (tests/support/fake_cuda).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/runtime/executor.h"
#include "tests/support/fake_cuda/fake_backend.h"
#include "tests/support/tensor_values.h"
#include "tools/probe/resnet_step.h"

namespace replicant::probe::resnet {
namespace {

using testing::FakeDriver;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ToDoubles;

// All blocks, with as few channels as a mask of bits takes in bf16.
StepGraphConfig SmallConfig() {
  StepGraphConfig config;
  config.batch_size = 2;
  config.model.width = 8;
  config.model.image_size = 32;
  config.model.num_classes = 5;
  // gradients reach the last norms' inputs at once
  config.model.has_zero_gamma = false;
  return config;
}

void FillInputs(RandomStream& random, runtime::Executor& plan) {
  for (const std::string& name : plan.input_names()) {
    const MutableTensorView view = plan.input(name);
    if (view.dtype() == DType::kU8) {
      for (uint8_t& x : view.Span<uint8_t>()) {
        x = static_cast<uint8_t>(random.UniformInt(256));
      }
    } else {
      for (int32_t& x : view.Span<int32_t>()) {
        x = static_cast<int32_t>(random.UniformInt(5));
      }
    }
  }
}

struct Training {
  std::string program;
  // by name, after the steps
  std::map<std::string, std::vector<double>> variables;
};

Training Train(const graph::PassOptions& passes) {
  const StepGraph step = BuildStepGraph(SmallConfig(), DType::kF32);
  const auto driver = std::make_shared<FakeDriver>();
  Training training;
  {
    const auto backend = testing::MakeFakeCudaBackend(driver);
    runtime::VariableStore store(*backend, /*seed=*/1);
    runtime::Executor plan(*step.graph, {.updates = step.updates}, store,
                           {.passes = passes});
    training.program = plan.ToText();
    RandomStream random(1, "batch");
    for (int i = 0; i < 2; ++i) {
      FillInputs(random, plan);
      plan.Run();
    }
    for (const auto& [name, variable] : store.variables()) {
      training.variables[name] = ToDoubles(store.Get(name).view());
    }
  }
  EXPECT_THAT(driver->problems(), IsEmpty());
  return training;
}

// catches a norm that takes what another one has stored
TEST(ResNetCudaTest, FusedNormsTrainWithTheBitsOfPlainOnes) {
  for (const graph::Precision precision :
       {graph::Precision::kF32, graph::Precision::kBF16}) {
    const Training fused = Train({.precision = precision});
    for (const char* form : {"mask=true", "second_dy=true",
                             "residual_epsilon=", "pool_window=3"}) {
      EXPECT_THAT(fused.program, HasSubstr(form));
    }
    EXPECT_EQ(fused.variables,
              Train({.off = {"fuse_norms"}, .precision = precision}).variables);
  }
}

}  // namespace
}  // namespace replicant::probe::resnet
