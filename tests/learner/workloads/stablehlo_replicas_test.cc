// D4PG, ResNet and SN-GAN as StableHLO modules on 2, 4 and 8 of XLA's CPU
// devices against one replica of ours: the same global batches, ten steps. The
// last one's random numbers are the host's.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "replicator/inspect/stablehlo_replicator.h"
#include "replicator/make_replicator.h"
#include "tests/learner/workloads/d4pg_replicas.h"
#include "tests/learner/workloads/image_replicas.h"
#include "tests/support/module_run.h"
#include "tests/support/tensor_values.h"

namespace replicant::learner {
namespace {

using replicator::ReplicationConfig;
using replicator::Strategy;

// The batch of all replicas, by name.
testing::NamedTensors NextBatch(replicator::InputPipeline& pipeline) {
  std::vector<HostTensor> tensors;
  std::vector<MutableTensorView> views;
  tensors.reserve(pipeline.specs().size());
  views.reserve(pipeline.specs().size());
  for (const replicator::InputSpec& spec : pipeline.specs()) {
    tensors.emplace_back(spec.dtype, spec.shape);
  }
  for (HostTensor& tensor : tensors) views.push_back(tensor.mutable_view());
  EXPECT_EQ(pipeline.Next({}, views), replicator::NextResult::kOk);
  testing::NamedTensors batch;
  for (size_t i = 0; i < tensors.size(); ++i) {
    batch.emplace(pipeline.specs()[i].name, std::move(tensors[i]));
  }
  return batch;
}

// A training as modules, on its way to XLA.
struct Modules {
  Modules(const std::string& name, const Training& training, int replicas)
      : replicator({.strategy = &Strategy::kInGraph, .replicas = replicas},
                   kReplicaSeed) {
    const auto input = replicator.MakeInput(training.input);
    for (const replicator::StepFn& step : training.steps) {
      static_cast<void>(replicator.Build(*input, step, {}));
    }
    if (training.start) training.start(replicator.variables());
    first = ValuesOf(replicator.variables());
    run = std::make_unique<testing::ModuleRun>(
        name, replicator.steps(), testing::ValuesOf(replicator.variables()));
    const auto batches = training.input({});
    for (int i = 0; i < training.num_steps; ++i) {
      run->AddStep(static_cast<size_t>(i) % training.steps.size(),
                   NextBatch(*batches));
    }
  }

  replicator::StableHloReplicator replicator;
  Variables first;
  std::unique_ptr<testing::ModuleRun> run;
};

// The floating variables of replica 0.
Variables VariablesOf(const testing::XlaResult& result) {
  Variables values;
  for (const auto& [name, value] : result.variables) {
    if (!graph::IsFloating(value.dtype())) continue;
    values[name] = testing::ToDoubles(value.view()[0]);
  }
  return values;
}

// The result of a training with one of our replicas.
struct Ours {
  Variables last;
  std::vector<double> losses;
};

struct Case {
  std::string name;
  Training training;
  std::string loss;
  int replicas;
};

Ours TrainOurs(const Case& c) {
  const auto replicator =
      replicator::MakeReplicator({.backend = "cpu"}, kReplicaSeed);
  const auto input = replicator->MakeInput(c.training.input);
  std::vector<std::unique_ptr<replicator::Step>> steps;
  steps.reserve(c.training.steps.size());
  for (const replicator::StepFn& step : c.training.steps) {
    steps.push_back(replicator->Build(*input, step));
  }
  if (c.training.start) c.training.start(replicator->variables());
  Ours ours;
  for (int i = 0; i < c.training.num_steps; ++i) {
    replicator::Step& step = *steps[static_cast<size_t>(i) % steps.size()];
    EXPECT_EQ(step.Run({}), replicator::NextResult::kOk);
    ours.losses.push_back(testing::ToDoubles(step.value(c.loss))[0]);
  }
  ours.last = ValuesOf(replicator->variables());
  return ours;
}

TEST(StableHloReplicasTest, LearnAsOneReplicaOfOurs) {
  const Training state = D4pgTraining(StateCase(DType::kF32));
  const Training pixels = D4pgTraining(PixelCase(DType::kF32));
  const Training resnet =
      ResNetTraining(DType::kF32, models::NormStatistics::kSync);
  const Training sngan = SnganTraining(DType::kF32);
  const std::vector<Case> cases = {{"d4pg_state_8", state, "critic_loss", 8},
                                   {"d4pg_pixels_1", pixels, "critic_loss", 1},
                                   {"d4pg_pixels_2", pixels, "critic_loss", 2},
                                   {"d4pg_pixels_4", pixels, "critic_loss", 4},
                                   {"resnet50_2", resnet, "loss", 2},
                                   {"resnet50_4", resnet, "loss", 4},
                                   {"resnet50_8", resnet, "loss", 8},
                                   {"sngan_2", sngan, "loss", 2},
                                   {"sngan_4", sngan, "loss", 4},
                                   {"sngan_8", sngan, "loss", 8}};
  std::vector<std::unique_ptr<Modules>> modules;
  std::vector<testing::XlaRun> runs;
  for (const Case& c : cases) {
    modules.push_back(
        std::make_unique<Modules>(c.name, c.training, c.replicas));
    runs.push_back(std::move(modules.back()->run->run()));
  }
  const std::vector<testing::XlaResult> results = testing::RunXla(runs);
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i].name);
    const Ours ours = TrainOurs(cases[i]);
    CheckSameTraining(modules[i]->first, ours.last, VariablesOf(results[i]),
                      DType::kF32);
    for (size_t s = 0; s < ours.losses.size(); ++s) {
      const double loss =
          testing::ToDoubles(results[i].outputs[s].at(cases[i].loss).view())[0];
      EXPECT_NEAR(ours.losses[s], loss, 1e-4) << "step " << s;
    }
  }
}

}  // namespace
}  // namespace replicant::learner
