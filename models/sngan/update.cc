#include "models/sngan/update.h"

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/image.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/nn/optimizers.h"

namespace replicant::models::sngan {
namespace {

// mean(max(0, 1 + sign * x))
Output Hinge(Output x, double sign) {
  return graph::ReduceMean(graph::Relu(graph::Affine(x, sign, 1.0)));
}

Output LearningRate(Graph& graph, const AdamConfig& config, double initial,
                    Output step, int64_t num_steps, DType dtype) {
  if (config.decay_end == 0) return graph.Scalar(initial, dtype);
  return nn::LinearSchedule(step, initial, 0.0, num_steps * config.decay_begin,
                            num_steps * config.decay_end, dtype);
}

}  // namespace

Updates::Updates(nn::ReplicaContext& replica, const SnganConfig& config,
                 DType dtype, CallSite site)
    : replica_(replica),
      graph_(replica.graph()),
      config_(config),
      dtype_(dtype),
      generator_(replica, config, dtype, site),
      generator_variables_(nn::VariablesOf(graph_, "generator/")),
      discriminator_(graph_, config, dtype, replica.num_logical_devices(),
                     site) {
  const Graph::SiteScope scope(graph_, site);
  discriminator_step_ = nn::AddStepCounter(graph_, "discriminator_step");
  generator_step_ = nn::AddStepCounter(graph_, "generator_step");
}

Updates::Update Updates::UpdateDiscriminator(const Batch& real,
                                             const Latent& fake,
                                             CallSite site) {
  const Graph::SiteScope scope(graph_, site);
  Update update;
  const Output real_image =
      graph::NormalizePixels(real.image, dtype_, 2.0 / 255.0, -1.0);
  // the discriminator's loss must not train the generator
  const Output fake_image =
      graph::StopGradient(generator_(fake.z, fake.label, &update.updates));
  const int64_t batch = real.image.shape()[0];
  const int64_t fake_batch = fake_image.shape()[0];
  update.logits = discriminator_(graph::Concat({real_image, fake_image}, 0),
                                 graph::Concat({real.label, fake.label}, 0),
                                 &update.updates);
  update.loss = graph::Add(
      Hinge(graph::Slice(update.logits, {0}, {batch}), -1.0),
      Hinge(graph::Slice(update.logits, {batch}, {fake_batch}), 1.0));
  const AdamConfig& optimizer = config_.optimizer;
  AddOptimizer(
      "discriminator",
      optimizer.discriminator_learning_rate.value_or(optimizer.learning_rate),
      discriminator_step_, config_.discriminator_steps, &update);
  return update;
}

Updates::Update Updates::UpdateGenerator(const Latent& fake, CallSite site) {
  const Graph::SiteScope scope(graph_, site);
  Update update;
  const Output image = generator_(fake.z, fake.label, &update.updates);
  update.logits = discriminator_(image, fake.label, &update.updates);
  update.loss = graph::Neg(graph::ReduceMean(update.logits));
  AddOptimizer("generator", config_.optimizer.learning_rate, generator_step_, 1,
               &update);
  if (config_.average_decay > 0.0) {
    for (const Output& average :
         nn::AverageVariables(graph_, generator_variables_,
                              generator_step_.value, config_.average_decay)) {
      update.updates.push_back(average);
    }
  }
  return update;
}

void Updates::AddOptimizer(const std::string& name, double learning_rate,
                           const nn::StepCounter& step, int64_t num_steps,
                           Update* update) {
  nn::TrainedVariables& trained = update->trained;
  trained = nn::GradientsOf(update->loss, name + "/");
  trained.gradients = replica_.MeanGradients(trained.gradients);
  update->updates.push_back(nn::Adam(
      replica_, name + "_optimizer", trained.variables, trained.gradients,
      LearningRate(graph_, config_.optimizer, learning_rate, step.value,
                   num_steps, graph::ScalarDType(dtype_)),
      step.value,
      {.beta1 = config_.optimizer.beta1, .beta2 = config_.optimizer.beta2}));
  update->updates.push_back(step.advance);
}

}  // namespace replicant::models::sngan
