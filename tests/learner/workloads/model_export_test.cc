// The models of all workloads in onnxruntime: the same results as here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "engine/export/onnx.h"
#include "engine/kernels/backend.h"
#include "engine/runtime/executor.h"
#include "learner/workloads/resnet_workload.h"
#include "learner/workloads/sngan_workload.h"
#include "replicator/make_replicator.h"
#include "tests/learner/workloads/d4pg_options.h"
#include "tests/support/onnx_runtime.h"
#include "tests/support/tensor_values.h"

namespace replicant::learner {
namespace {

using testing::RunOnnx;

constexpr int64_t kRows = 3;
using Inputs = std::map<std::string, HostTensor>;

// The outputs of the workload's model for kRows rows; `open_rows` makes the
// ONNX model of that many, its number left open.
void ExpectSameResults(Workload& workload, const std::string& output,
                       const Inputs& inputs, int64_t open_rows) {
  graph::Graph graph;
  const auto here = workload.BuildModel(graph, kRows);
  ASSERT_EQ(here.at(0).first, output);
  runtime::Executor plan(graph, {.outputs = {here[0].second}},
                         workload.variables());
  for (const auto& [name, value] : inputs) {
    const MutableTensorView input = plan.input(name);
    std::memcpy(input.data(), value.view().data(), input.size_bytes());
  }
  plan.Run();
  graph::Graph exported;
  const testing::OnnxResult there = RunOnnx(
      exporting::ToOnnx(exported,
                        {.outputs = workload.BuildModel(exported, open_rows),
                         .value_of =
                             [&](const std::string& name) {
                               return workload.variables().Get(name);
                             },
                         .batch_size = open_rows}),
      inputs);
  const HostTensor& got = there.outputs.at(output);
  ASSERT_EQ(got.shape(), plan.output(0).shape());
  const auto a = testing::ToDoubles(got.view());
  const auto b = testing::ToDoubles(plan.output(0));
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], b[i], 1e-5 * std::max(1.0, std::abs(b[i]))) << i;
    largest = std::max(largest, std::abs(b[i]));
  }
  EXPECT_GT(largest, 1e-3);
}

// Values by which no layer is the identity: norms' scales and statistics too.
void SetRandomVariables(Workload& workload) {
  for (const std::string& name : workload.ModelVariables()) {
    const auto& spec = workload.variables().at(name).spec;
    const bool is_variance =
        name.ends_with("variance") || name.ends_with("var");
    workload.variables().Set(
        name, testing::RandomUniform(
                  spec.dtype, spec.shape, is_variance ? 0.5 : -0.3,
                  is_variance ? 1.5 : 0.3, std::hash<std::string>{}(name))
                  .view());
  }
}

HostTensor Pixels(const Shape& shape) {
  HostTensor pixels(DType::kU8, shape);
  for (size_t i = 0; uint8_t & x : pixels.MutableSpan<uint8_t>()) {
    x = static_cast<uint8_t>(i++ * 37);
  }
  return pixels;
}

std::unique_ptr<replicator::Replicator> OneReplica() {
  return replicator::MakeReplicator({}, /*seed=*/1);
}

TEST(ModelExportTest, PolicyFromPixels) {
  D4pgOptions options;
  options.agent.networks.encoder.kind = agents::d4pg::EncoderKind::kLight;
  options.agent.networks.policy_last_layer_scale = 1.0;
  options.spec.task = {.has_pixels = true,
                       .observation = Shape({36, 36, 9}),
                       .frame_stack = 3,
                       .action_minimum = {-1.0, -1.0},
                       .action_maximum = {1.0, 1.0}};
  AgentWorkload workload = MakeWorkload(options, /*source=*/nullptr);
  SetRandomVariables(workload);
  Inputs inputs;
  inputs.emplace("observation", Pixels(Shape({kRows, 36, 36, 9})));
  ExpectSameResults(workload, "action", inputs, /*open_rows=*/7919);
}

// The model has an input for each image and one for the state; an actor's
// policy has the images in one.
TEST(ModelExportTest, PolicyFromTwoCamerasAndState) {
  D4pgOptions options;
  options.agent.networks.encoder.kind = agents::d4pg::EncoderKind::kLight;
  options.agent.networks.policy_last_layer_scale = 1.0;
  // a model takes raw numbers
  options.agent.observations.normalize = agents::Normalization::kRunning;
  const Shape side({36, 40, 9}), back({20, 20, 9});
  options.spec.task = {
      .has_pixels = true,
      .observation = Shape({side.num_elements() + back.num_elements()}),
      .images = {{"pixels/side", side}, {"pixels/back", back}},
      .state_size = 5,
      .frame_stack = 3,
      .action_minimum = {-1.0, -1.0},
      .action_maximum = {1.0, 1.0}};
  AgentWorkload workload = MakeWorkload(options, /*source=*/nullptr);
  SetRandomVariables(workload);
  Inputs inputs;
  inputs.emplace("pixels/side", Pixels(Shape({kRows, 36, 40, 9})));
  inputs.emplace("pixels/back", Pixels(Shape({kRows, 20, 20, 9})));
  inputs.emplace("state",
                 testing::RandomNormal(DType::kF32, Shape({kRows, 5}), 1));
  ExpectSameResults(workload, "action", inputs, /*open_rows=*/7919);

  const auto run = [&](bool has_named_images, const auto& fill) {
    graph::Graph graph;
    const graph::Output action =
        agents::d4pg::MakeAgent(options.agent)
            ->BuildPolicy(graph, options.spec.task,
                          {.num_environments = kRows,
                           .has_noise = false,
                           .has_named_images = has_named_images});
    runtime::Executor plan(graph, {.outputs = {action}}, workload.variables());
    std::ranges::copy(inputs.at("state").view().bytes(),
                      plan.input("state").bytes().begin());
    fill(plan);
    plan.Run();
    return testing::ToDoubles(plan.output(0));
  };
  const auto named = run(true, [&](runtime::Executor& plan) {
    for (const char* name : {"pixels/side", "pixels/back"}) {
      std::ranges::copy(inputs.at(name).view().bytes(),
                        plan.input(name).bytes().begin());
    }
  });
  const auto joined = run(false, [&](runtime::Executor& plan) {
    auto out = plan.input("observation").bytes().begin();
    for (size_t row = 0; row < kRows; ++row) {
      for (const char* name : {"pixels/side", "pixels/back"}) {
        const auto all = inputs.at(name).view().bytes();
        const size_t size = all.size() / kRows;
        out = std::ranges::copy(all.subspan(row * size, size), out).out;
      }
    }
  });
  EXPECT_EQ(named, joined);
}

// Would catch an export that wants variables which RUN/best does not have.
TEST(ModelExportTest, APolicysModelHasItsAveragesAlone) {
  D4pgOptions options;
  options.agent.average_decay = 0.9;
  options.spec.task = {.observation = Shape({3}),
                       .action_minimum = {-1.0},
                       .action_maximum = {1.0}};
  AgentWorkload workload = MakeWorkload(options, /*source=*/nullptr);
  const std::vector<std::string> names = workload.ModelVariables();
  EXPECT_FALSE(names.empty());
  for (const std::string& name : names) {
    EXPECT_TRUE(name.starts_with("average/")) << name;
    EXPECT_TRUE(workload.variables().Has(name)) << name;
  }
}

TEST(ModelExportTest, Classifier) {
  models::resnet::ResNetConfig config;
  config.depth = models::resnet::Depth::k50;
  config.width = 4;
  config.image_size = 64;
  config.num_classes = 5;
  config.average_decay = 0.9;
  ResNetWorkload workload(config, /*batch_size=*/2, graph::Precision::kF32,
                          /*seed=*/1, OneReplica());
  SetRandomVariables(workload);
  Inputs inputs;
  inputs.emplace("image", Pixels(Shape({kRows, 64, 64, 3})));
  ExpectSameResults(workload, "logits", inputs, /*open_rows=*/7919);
}

TEST(ModelExportTest, Generator) {
  models::sngan::SnganConfig config;
  config.generator_channels = 8;
  config.discriminator_channels = 4;
  config.latent_size = 6;
  SnganWorkload workload(config, /*batch_size=*/2, graph::Precision::kF32,
                         /*seed=*/1, OneReplica());
  SetRandomVariables(workload);
  Inputs inputs;
  inputs.emplace("z", testing::RandomNormal(DType::kF32, Shape({kRows, 6}), 1));
  inputs.emplace("label",
                 testing::Values(DType::kI32, Shape({kRows}), {3, 0, 9}));
  ExpectSameResults(workload, "image", inputs, /*open_rows=*/7919);
}

}  // namespace
}  // namespace replicant::learner
