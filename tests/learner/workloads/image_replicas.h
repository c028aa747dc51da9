#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "learner/workloads/image_steps.h"
#include "learner/workloads/synthetic_images.h"
#include "replicator/make_replicator.h"
#include "tests/learner/workloads/training.h"
#include "tests/learner/workloads/variables_of.h"

// The image models' updates on N replicas against the same on one: the same
// global batches, ten steps.
namespace replicant::learner {

inline constexpr int64_t kImageBatch = 8;
inline constexpr int kImageSteps = 10;

struct ImageRun {
  Variables first;  // the start
  Variables last;
  std::vector<double> losses;
};

inline double ScalarOf(TensorView value) {
  return value.dtype() == DType::kF64
             ? value.Span<double>()[0]
             : static_cast<double>(value.Span<float>()[0]);
}

inline Training ImageTraining(const SyntheticImagesOptions& images,
                              const std::vector<replicator::StepFn>& steps,
                              int num_steps = kImageSteps) {
  return {.input =
              [images](const replicator::InputContext& context) {
                return std::make_unique<SyntheticImages>(images, context);
              },
          .steps = steps,
          .num_steps = num_steps};
}

inline ImageRun TrainImages(
    const Training& training, const replicator::ReplicationConfig& config,
    const kernels::BackendFactory& make_backend = kernels::MakeBackend) {
  const auto replicator = replicator::MakeReplicator(config, kReplicaSeed,
                                                     /*rank=*/{}, make_backend);
  const auto input = replicator->MakeInput(training.input);
  std::vector<std::unique_ptr<replicator::Step>> steps;
  steps.reserve(training.steps.size());
  for (const replicator::StepFn& step_fn : training.steps) {
    steps.push_back(replicator->Build(*input, step_fn));
  }
  ImageRun run;
  run.first = ValuesOf(replicator->variables());
  for (int i = 0; i < training.num_steps; ++i) {
    replicator::Step& step = *steps[static_cast<size_t>(i) % steps.size()];
    EXPECT_EQ(step.Run({}), replicator::NextResult::kOk);
    run.losses.push_back(ScalarOf(step.value("loss")));
  }
  run.last = ValuesOf(replicator->variables());
  return run;
}

inline Training ResNetTraining(DType dtype, models::NormStatistics statistics,
                               int num_steps = kImageSteps,
                               int micro_batches = 1) {
  models::resnet::ResNetConfig model;
  model.depth = models::resnet::Depth::k18;
  model.stem = models::resnet::Stem::kSmall;
  model.width = 4;
  model.image_size = 16;
  model.num_classes = 3;
  // so that every block counts from the first step on
  model.has_zero_gamma = false;
  model.optimizer.learning_rate = 0.005;
  model.batch_norm_statistics = statistics;
  model.average_decay = 0.9;
  model.micro_batches = micro_batches;
  return ImageTraining(
      {.batch_size = kImageBatch, .side = 16, .num_classes = 3, .seed = 5},
      {[=](replicator::ReplicaContext& replica,
           const replicator::Inputs& inputs) {
        return BuildResNetStep(replica, inputs, model, dtype);
      }},
      num_steps);
}

inline ImageRun TrainResNet(DType dtype, models::NormStatistics statistics,
                            const replicator::ReplicationConfig& config,
                            int num_steps = kImageSteps,
                            int micro_batches = 1) {
  return TrainImages(
      ResNetTraining(dtype, statistics, num_steps, micro_batches), config);
}

// Two updates of the discriminator for one of the generator.
inline Training SnganTraining(DType dtype) {
  models::sngan::SnganConfig model;
  model.num_classes = 3;
  model.latent_size = 4;
  model.generator_channels = 3;
  model.discriminator_channels = 3;
  model.average_decay = 0.9;
  const auto step_fn = [=](SnganNetwork network) {
    return [=](replicator::ReplicaContext& replica,
               const replicator::Inputs& inputs) {
      return BuildSnganStep(replica, inputs, model, network, dtype);
    };
  };
  const replicator::StepFn discriminator =
      step_fn(SnganNetwork::kDiscriminator);
  return ImageTraining(
      {.batch_size = kImageBatch, .side = 32, .num_classes = 3, .seed = 5},
      {discriminator, discriminator, step_fn(SnganNetwork::kGenerator)});
}

inline ImageRun TrainSngan(DType dtype,
                           const replicator::ReplicationConfig& config) {
  return TrainImages(SnganTraining(dtype), config);
}

// Both updates in one step.
inline ImageRun TrainJointSngan(
    const replicator::ReplicationConfig& config, DType dtype = DType::kF64,
    const kernels::BackendFactory& make_backend = kernels::MakeBackend) {
  models::sngan::SnganConfig model;
  model.num_classes = 3;
  model.latent_size = 4;
  model.generator_channels = 3;
  model.discriminator_channels = 3;
  const auto replicator = replicator::MakeReplicator(config, kReplicaSeed,
                                                     /*rank=*/{}, make_backend);
  const auto input =
      replicator->MakeInput([&](const replicator::InputContext& context) {
        return std::make_unique<SyntheticImages>(
            SyntheticImagesOptions{.batch_size = kImageBatch,
                                   .side = 32,
                                   .num_classes = 3,
                                   .seed = 5},
            context);
      });
  const auto step =
      replicator->BuildJoint(*input, JointSnganPhases(model, dtype));
  ImageRun run;
  run.first = ValuesOf(replicator->variables());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(step->Run({}), replicator::NextResult::kOk);
    for (const char* const name : {"discriminator_loss", "generator_loss"}) {
      run.losses.push_back(ScalarOf(step->value(name)));
    }
  }
  run.last = ValuesOf(replicator->variables());
  return run;
}

inline void CheckSameRun(const ImageRun& one, const ImageRun& many,
                         DType dtype) {
  CheckSameTraining(one.first, one.last, many.last, dtype);
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(one.losses[i], many.losses[i],
                dtype == DType::kF64 ? 1e-9 : 1e-4)
        << i;
  }
}

inline void CheckResNetLearnsAsOneReplica(
    DType dtype, const replicator::ReplicationConfig& config) {
  CheckSameRun(TrainResNet(dtype, models::NormStatistics::kSync,
                           {.backend = config.backend}),
               TrainResNet(dtype, models::NormStatistics::kSync, config),
               dtype);
}

inline void CheckSnganLearnsAsOneReplica(
    DType dtype, const replicator::ReplicationConfig& config) {
  CheckSameRun(TrainSngan(dtype, {.backend = config.backend}),
               TrainSngan(dtype, config), dtype);
}

}  // namespace replicant::learner
