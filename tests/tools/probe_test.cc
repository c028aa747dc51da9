#include "tools/probe/probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/config/load.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"
#include "engine/nn/trained_variables.h"
#include "engine/runtime/executor.h"
#include "tests/support/message_of.h"
#include "tests/support/tensor_values.h"
#include "tools/probe/d4pg_step.h"
#include "tools/probe/resnet_step.h"

namespace replicant::probe {
namespace {

using testing::MessageOf;

StepGraph SmallWorkload() {
  d4pg::StepGraphConfig config;
  config.observation = {3};
  config.action_size = 1;
  config.batch_size = 2;
  config.agent.networks.policy_hidden_sizes = {4};
  config.agent.networks.critic_hidden_sizes = {4};
  config.agent.distribution.num_atoms = 5;
  return d4pg::BuildStepGraph(config, DType::kF32);
}

// A good input of two batches, to be spoilt by tests.
std::map<std::string, HostTensor> GoodInput(const StepGraph& workload) {
  std::map<std::string, HostTensor> tensors;
  uint64_t seed = 0;
  for (const NamedOutput& gradient : workload.gradients) {
    std::string name = gradient.name;
    std::ranges::replace(name, '/', '.');
    tensors.emplace(
        "variables/" + name,
        testing::RandomNormal(DType::kF32, gradient.output.shape(), ++seed));
  }
  for (const char* name : {"observation", "next_observation"}) {
    tensors.emplace(fmt::format("batches/{}", name),
                    testing::RandomNormal(DType::kF32, Shape({2, 2, 3}), 7));
  }
  tensors.emplace("batches/action",
                  testing::RandomNormal(DType::kF32, Shape({2, 2, 1}), 8));
  for (const char* name : {"reward", "discount", "importance_weight"}) {
    tensors.emplace(
        fmt::format("batches/{}", name),
        testing::RandomUniform(DType::kF32, Shape({2, 2}), 0.1, 0.9, 9));
  }
  return tensors;
}

ProbeResult RunWith(const StepGraph& workload,
                    const std::map<std::string, HostTensor>& tensors,
                    const ProbeOptions& options = {}) {
  std::vector<NamedTensorView> views;
  for (const auto& [name, tensor] : tensors) {
    views.push_back({name, tensor.view()});
  }
  const std::string file = EncodeSafetensors(views);
  const auto backend = kernels::MakeBackend("reference");
  return RunProbe(
      workload, *backend,
      SafetensorsReader(std::as_bytes(std::span(file)), "in.safetensors"),
      "in.safetensors", options);
}

TEST(StepGraphTest, NamesGradientsByTheirVariables) {
  StepGraph step;
  step.graph = std::make_unique<graph::Graph>();
  const auto read = [&](const char* name) {
    return step.graph->Read(
        step.graph->AddVariable({.name = name, .shape = Shape({2})}));
  };
  const graph::Output a = read("critic/a");
  const graph::Output b = read("critic/b");
  const nn::TrainedVariables critic =
      nn::GradientsOf(graph::ReduceSum(graph::Mul(a, b)), "critic/");
  step.AddGradients(critic);
  ASSERT_EQ(step.gradients.size(), 2U);
  EXPECT_EQ(step.gradients[0].name, "critic/a");
  EXPECT_EQ(step.gradients[0].output, critic.gradients[0]);
  EXPECT_EQ(step.gradients[1].name, "critic/b");
}

// Three steps on two batches are those batches in turn, and what a run writes
// is what the next one can start from.
TEST(ProbeTest, GoesOnFromWhatItWrote) {
  const StepGraph workload = SmallWorkload();
  const auto input = GoodInput(workload);
  const ProbeResult three = RunWith(workload, input, {.steps = 3});
  ASSERT_EQ(three.at("losses/critic_loss").shape(), Shape({3}));
  ASSERT_EQ(three.at("steps/priority").shape(), Shape({3, 2}));
  ASSERT_TRUE(three.contains("gradients/critic.head.0.weight"));
  ASSERT_TRUE(
      three.contains("variables/critic_optimizer.m.critic.head.0.bias"));

  const ProbeResult two = RunWith(workload, input, {.steps = 2});
  std::map<std::string, HostTensor> next = GoodInput(workload);
  for (const auto& [name, tensor] : two) {
    if (!name.starts_with("variables/")) continue;
    next.insert_or_assign(name, HostTensor::Clone(tensor.view()));
  }
  const ProbeResult third = RunWith(workload, next);
  EXPECT_EQ(third.at("losses/critic_loss").Span<float>()[0],
            three.at("losses/critic_loss").Span<float>()[2]);
}

// Without targets in the file they are what the online networks are.
TEST(ProbeTest, TargetsThatAreNotGivenAreCopies) {
  const StepGraph workload = SmallWorkload();
  auto input = GoodInput(workload);
  const ProbeResult without = RunWith(workload, input);
  for (const auto& [name, tensor] : GoodInput(workload)) {
    if (!name.starts_with("variables/")) continue;
    input.emplace("variables/target." + name.substr(10),
                  HostTensor::Clone(tensor.view()));
  }
  const ProbeResult with = RunWith(workload, input);
  EXPECT_EQ(with.at("losses/critic_loss").Span<float>()[0],
            without.at("losses/critic_loss").Span<float>()[0]);
}

TEST(ProbeTest, RefusesAFileThatDoesNotFit) {
  const StepGraph workload = SmallWorkload();
  const auto message = [&](const auto& spoil) {
    auto input = GoodInput(workload);
    spoil(input);
    return MessageOf<IoError>([&] { RunWith(workload, input); });
  };
  EXPECT_EQ(
      message([](auto& input) {
        input.emplace("variables/critic.head.0.wieght",
                      HostTensor(DType::kF32, Shape({4, 4})));
      }),
      "in.safetensors: tensor 'variables/critic.head.0.wieght' is not "
      "one of the workload; want variables/NAME and batches/NAME, did you "
      "mean 'variables/critic.head.0.weight'?");
  EXPECT_EQ(message([](auto& input) {
              input.insert_or_assign("variables/critic.head.0.weight",
                                     HostTensor(DType::kF32, Shape({4, 3})));
            }),
            "in.safetensors: 'variables/critic.head.0.weight' is f32[4,3], "
            "want f32[4,4]");
  EXPECT_EQ(message([](auto& input) { input.erase("batches/reward"); }),
            "in.safetensors: no tensor 'batches/reward'");
  EXPECT_EQ(
      message([](auto& input) { input.erase("variables/policy.head.3.bias"); }),
      "in.safetensors: no tensor 'variables/policy.head.3.bias'");
  EXPECT_EQ(message([](auto& input) {
              input.insert_or_assign("batches/action",
                                     HostTensor(DType::kI64, Shape({2, 2, 1})));
            }),
            "in.safetensors: 'batches/action' is i64[2,2,1], want f32[N,2,1]");
  EXPECT_EQ(message([](auto& input) {
              input.insert_or_assign("batches/reward",
                                     HostTensor(DType::kF32, Shape({3, 2})));
            }),
            "in.safetensors: 'batches/reward' has 3 batches, 'batches/action' "
            "has 2");
}

TEST(ProbeTest, NamesTheNumberThatNoStepCanUse) {
  const StepGraph workload = SmallWorkload();
  const auto message = [&](const std::string& name, size_t element,
                           float value) {
    auto input = GoodInput(workload);
    input.at(name).MutableSpan<float>()[element] = value;
    return MessageOf<runtime::NumericError>(
        [&] { RunWith(workload, input, {.steps = 4}); });
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(message("batches/reward", 3, nan),
            "in.safetensors: step 1: batch 1: input 'reward': row 1 is nan; "
            "want finite numbers");
  EXPECT_EQ(message("batches/discount", 0, infinity),
            "in.safetensors: step 0: batch 0: input 'discount': row 0 is inf; "
            "want finite numbers");
  EXPECT_EQ(message("batches/observation", 11, nan),
            "in.safetensors: step 1: batch 1: input 'observation': row 1, "
            "element 2, is nan; want finite numbers");
  EXPECT_EQ(message("variables/critic.head.3.bias", 2, nan),
            "in.safetensors: 'variables/critic.head.3.bias': element 2 is nan");
}

// A small ResNet and variables of zeros, for two images with these labels.
StepGraph SmallResNet(resnet::GraphKind kind, const std::vector<double>& labels,
                      std::map<std::string, HostTensor>* input) {
  resnet::StepGraphConfig config;
  config.model.depth = models::resnet::Depth::k18;
  config.model.stem = models::resnet::Stem::kSmall;
  config.model.width = 4;
  config.model.image_size = 32;
  config.model.num_classes = 3;
  config.batch_size = 2;
  const StepGraph training = resnet::BuildStepGraph(config, DType::kF32);
  for (const NamedOutput& gradient : training.gradients) {
    std::string name = gradient.name;
    std::ranges::replace(name, '/', '.');
    input->emplace("variables/" + name,
                   HostTensor(DType::kF32, gradient.output.shape()));
  }
  input->emplace("batches/image",
                 HostTensor(DType::kU8, Shape({1, 2, 32, 32, 3})));
  input->emplace("batches/label",
                 testing::Values(DType::kI32, Shape({1, 2}), labels));
  config.kind = kind;
  return resnet::BuildStepGraph(config, DType::kF32);
}

TEST(ProbeTest, NamesTheLabelThatIsNoClass) {
  std::map<std::string, HostTensor> input;
  const StepGraph workload =
      SmallResNet(resnet::GraphKind::kTrain, {0, 3}, &input);
  EXPECT_EQ(
      MessageOf<runtime::NumericError>([&] { RunWith(workload, input); }),
      "in.safetensors: step 0: batch 0: input 'label': row 1 is 3; want 0 to "
      "2");
}

// The logits of such a network are equal: the first class is chosen.
TEST(ProbeTest, AnEvaluationGivesLossAndAccuracy) {
  std::map<std::string, HostTensor> input;
  const StepGraph workload =
      SmallResNet(resnet::GraphKind::kEvaluate, {0, 1}, &input);
  const ProbeResult result = RunWith(workload, input);
  EXPECT_NEAR(result.at("losses/loss").Span<float>()[0], std::log(3.0F), 1e-6F);
  EXPECT_EQ(result.at("steps/accuracy").Span<float>()[0], 0.5F);
}

// In debug mode the op is named, else the loss.
TEST(ProbeTest, NamesTheLossThatIsNotFinite) {
  const StepGraph workload = SmallWorkload();
  auto input = GoodInput(workload);
  // exp(large) is no problem of a stable softmax; a product of large ones is
  for (float& x :
       input.at("variables/critic.head.3.weight").MutableSpan<float>()) {
    x = 3e38F;
  }
  for (float& x :
       input.at("variables/critic.head.1.bias").MutableSpan<float>()) {
    x = 3.0F;
  }
  EXPECT_EQ(MessageOf<runtime::NumericError>([&] { RunWith(workload, input); }),
            "loss 'critic_loss' is nan at step 0; hint: debug mode "
            "(--check_finite) names the first op that produced such a value");
  const std::string message = MessageOf<runtime::NumericError>(
      [&] { RunWith(workload, input, {.check_finite = true}); });
  EXPECT_NE(message.find("MatMul 'MatMul"), std::string::npos) << message;
  EXPECT_NE(
      message.find("it is the first op of this run that produced such a value"),
      std::string::npos)
      << message;
}

}  // namespace
}  // namespace replicant::probe
