#include "learner/workloads/image_steps.h"

#include <optional>
#include <vector>

#include "engine/graph/ops/random.h"
#include "engine/nn/single_replica.h"
#include "models/resnet/update.h"
#include "models/sngan/update.h"

namespace replicant::learner {
namespace {

using graph::Output;
using replicator::ReplicaContext;

// A stream of random numbers with one row per global row of the update.
graph::RandomOptions StreamOf(const ReplicaContext::RowRange& rows,
                              const char* name, Output step) {
  return {.name = name,
          .step = step,
          .first_row = rows.first_row,
          .row_offset = rows.row_offset};
}

}  // namespace

replicator::StepOutputs BuildResNetStep(
    ReplicaContext& replica, const replicator::Inputs& inputs,
    const models::resnet::ResNetConfig& config, DType dtype) {
  const models::resnet::Update update = models::resnet::BuildUpdate(
      replica, config, dtype,
      {.image = inputs.at("image"), .label = inputs.at("label")});
  return {.values = {{"loss",
                      replica.AllReduce(update.score.loss, ReduceOp::kMean)},
                     {"accuracy", replica.AllReduce(update.score.accuracy,
                                                    ReduceOp::kMean)}},
          .updates = update.updates};
}

replicator::StepOutputs BuildResNetEvaluation(
    ReplicaContext& replica, const replicator::Inputs& inputs,
    const models::resnet::ResNetConfig& config) {
  const models::resnet::Evaluation sums = models::resnet::BuildEvaluation(
      replica.graph(), config, DType::kF32,
      {.image = inputs.at("image"), .label = inputs.at("label")},
      inputs.at("weight"));
  return {.values = {{"loss", replica.AllSum(sums.loss)},
                     {"top1", replica.AllSum(sums.top1)},
                     {"top5", replica.AllSum(sums.top5)},
                     {"weight", replica.AllSum(sums.weight)}}};
}

Output BuildSnganSamples(graph::Graph& graph, Output z, Output label,
                         const models::sngan::SnganConfig& config) {
  std::optional<graph::Graph::Scope> average;
  if (config.average_decay > 0.0) average.emplace(graph, nn::kAverageScope);
  nn::SingleReplica replica(graph);
  return models::sngan::Generator(replica, config)(z, label,
                                                   /*updates=*/nullptr);
}

replicator::StepOutputs BuildSnganStep(ReplicaContext& replica,
                                       const replicator::Inputs& inputs,
                                       const models::sngan::SnganConfig& config,
                                       SnganNetwork network, DType dtype) {
  const models::sngan::Batch real{.image = inputs.at("image"),
                                  .label = inputs.at("label")};
  const int64_t batch_size = real.label.shape()[0];
  const Shape latent({batch_size, config.latent_size});
  const auto rows = replica.Rows(batch_size);
  models::sngan::Updates updates(replica, config, dtype);
  models::sngan::Updates::Update update;
  if (network == SnganNetwork::kGenerator) {
    const Output step = updates.generator_step();
    update = updates.UpdateGenerator(
        {.z = graph::RandomNormal(StreamOf(rows, "generator_z", step), dtype,
                                  latent),
         .label = real.label});
  } else {
    const Output step = updates.discriminator_step();
    update = updates.UpdateDiscriminator(
        real, {.z = graph::RandomNormal(StreamOf(rows, "discriminator_z", step),
                                        dtype, latent),
               .label = graph::RandomInt(
                   StreamOf(rows, "discriminator_label", step),
                   Shape({batch_size}), 0, config.num_classes)});
  }
  return {.values = {{"loss", replica.AllReduce(update.loss, ReduceOp::kMean)}},
          .updates = update.updates};
}

std::vector<replicator::StepFn> JointSnganPhases(
    const models::sngan::SnganConfig& config, DType dtype) {
  const auto phase = [&](SnganNetwork network, const char* loss) {
    return [=](ReplicaContext& replica, const replicator::Inputs& inputs) {
      replicator::StepOutputs outputs =
          BuildSnganStep(replica, inputs, config, network, dtype);
      outputs.values[0].first = loss;
      return outputs;
    };
  };
  return {phase(SnganNetwork::kDiscriminator, "discriminator_loss"),
          phase(SnganNetwork::kGenerator, "generator_loss")};
}

}  // namespace replicant::learner
