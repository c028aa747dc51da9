#include "models/sngan/update.h"

#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/image.h"
#include "core/graph/ops/reduce.h"
#include "core/graph/ops/shape_ops.h"
#include "core/nn/optimizers.h"

namespace replicant::models::sngan {
namespace {

// mean(max(0, 1 + sign * x))
Output Hinge(Output x, double sign, CallSite site) {
  return graph::ReduceMean(graph::Relu(graph::Affine(x, sign, 1.0, site), site),
                           {}, site);
}

Output LearningRate(Graph& graph, const AdamConfig& config, Output step,
                    int64_t num_steps, CallSite site) {
  if (config.decay_end == 0) {
    return graph.Scalar(config.learning_rate, DType::kF32, site);
  }
  return nn::LinearSchedule(step, config.learning_rate, 0.0,
                            num_steps * config.decay_begin,
                            num_steps * config.decay_end, site);
}

}  // namespace

Batch AddBatchInputs(Graph& graph, const SnganConfig& config,
                     int64_t batch_size, CallSite site) {
  return {
      .image = graph.Input("image", DType::kU8,
                           Shape({batch_size, config.side(), config.side(), 3}),
                           site),
      .label = graph.Input("label", DType::kI32, Shape({batch_size}), site)};
}

Updates::Updates(Graph& graph, const SnganConfig& config, DType dtype,
                 const nn::ReplicaHooks& replicas, CallSite site)
    : graph_(graph),
      config_(config),
      dtype_(dtype),
      replicas_(replicas),
      generator_(graph, config, dtype,
                 GatherFor(replicas, config.batch_norm_statistics), site),
      discriminator_(graph, config, dtype, site),
      discriminator_step_(
          nn::AddStepCounter(graph, "discriminator_step", site)),
      generator_step_(nn::AddStepCounter(graph, "generator_step", site)) {}

Updates::Update Updates::UpdateDiscriminator(const Batch& real,
                                             const Latent& fake,
                                             CallSite site) {
  Update update;
  const Output real_image =
      graph::NormalizePixels(real.image, dtype_, 2.0 / 255.0, -1.0, site);
  // the generator must not be found behind the discriminator's new weights
  const Output fake_image = graph::StopGradient(
      generator_(fake.z, fake.label, &update.updates, site), site);
  const int64_t batch = real.image.shape()[0];
  const int64_t fake_batch = fake_image.shape()[0];
  update.logits = discriminator_(
      graph::Concat({real_image, fake_image}, 0, site),
      graph::Concat({real.label, fake.label}, 0, site), &update.updates, site);
  update.loss = graph::Add(
      Hinge(graph::Slice(update.logits, {0}, {batch}, site), -1.0, site),
      Hinge(graph::Slice(update.logits, {batch}, {fake_batch}, site), 1.0,
            site),
      site);
  AddOptimizer("discriminator", discriminator_step_,
               config_.discriminator_steps, site, &update);
  return update;
}

Updates::Update Updates::UpdateGenerator(const Latent& fake, CallSite site) {
  Update update;
  const Output image = generator_(fake.z, fake.label, &update.updates, site);
  update.logits = discriminator_(image, fake.label, &update.updates, site);
  update.loss = graph::Neg(graph::ReduceMean(update.logits, {}, site), site);
  AddOptimizer("generator", generator_step_, 1, site, &update);
  return update;
}

void Updates::AddOptimizer(const std::string& name, const nn::StepCounter& step,
                           int64_t num_steps, CallSite site, Update* update) {
  nn::TrainedVariables& trained = update->trained;
  trained = nn::GradientsOf(update->loss, name + "/", site);
  if (replicas_.mean_gradients) {
    trained.gradients = replicas_.mean_gradients(trained.gradients);
  }
  update->updates.push_back(nn::Adam(
      graph_, name + "_optimizer", trained.variables, trained.gradients,
      LearningRate(graph_, config_.optimizer, step.value, num_steps, site),
      step.value,
      {.beta1 = config_.optimizer.beta1, .beta2 = config_.optimizer.beta2}, {},
      site));
  update->updates.push_back(step.advance);
}

}  // namespace replicant::models::sngan
