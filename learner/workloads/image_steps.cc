#include "learner/workloads/image_steps.h"

#include <vector>

#include "core/graph/ops/random.h"
#include "learner/workloads/across_replicas.h"
#include "learner/workloads/resnet50/update.h"
#include "learner/workloads/sngan/update.h"

namespace replicant::learner {
namespace {

using graph::Output;
using replicator::ReduceOp;
using replicator::ReplicaContext;

AcrossReplicas Across(ReplicaContext& replica) {
  AcrossReplicas across;
  across.mean_gradients = [&](const std::vector<Output>& gradients) {
    return replica.MeanGradients(gradients);
  };
  if (replica.num_replicas() > 1) {
    across.gather = [&](Output x) { return replica.AllGather(x); };
  }
  across.num_logical_devices = replica.num_logical_devices();
  return across;
}

// A stream of random numbers, a row of which is one of the whole update.
graph::RandomOptions StreamOf(ReplicaContext& replica, const char* name,
                              Output step, int64_t batch_size) {
  const auto rows = replica.Rows(batch_size);
  return {.name = name,
          .step = step,
          .first_row = rows.first_row,
          .row_offset = rows.row_offset};
}

}  // namespace

replicator::StepOutputs BuildResNetStep(ReplicaContext& replica,
                                        const replicator::Inputs& inputs,
                                        const resnet50::ResNetConfig& config,
                                        DType dtype) {
  const resnet50::Update update = resnet50::BuildUpdate(
      replica.graph(), config, dtype,
      {.image = inputs.at("image"), .label = inputs.at("label")},
      Across(replica));
  return {.values = {{"loss", replica.AllReduce(update.loss, ReduceOp::kMean)},
                     {"accuracy",
                      replica.AllReduce(update.accuracy, ReduceOp::kMean)}},
          .updates = update.updates};
}

replicator::StepOutputs BuildSnganStep(ReplicaContext& replica,
                                       const replicator::Inputs& inputs,
                                       const sngan::SnganConfig& config,
                                       SnganNetwork network, DType dtype) {
  const sngan::Batch real{.image = inputs.at("image"),
                          .label = inputs.at("label")};
  const int64_t batch_size = real.label.shape()[0];
  const Shape latent({batch_size, config.latent_size});
  sngan::Updates updates(replica.graph(), config, dtype, Across(replica));
  sngan::Updates::Update update;
  if (network == SnganNetwork::kGenerator) {
    const Output step = updates.generator_step();
    update = updates.UpdateGenerator(
        {.z = graph::RandomNormal(
             StreamOf(replica, "generator_z", step, batch_size), dtype, latent),
         .label = real.label});
  } else {
    const Output step = updates.discriminator_step();
    update = updates.UpdateDiscriminator(
        real, {.z = graph::RandomNormal(
                   StreamOf(replica, "discriminator_z", step, batch_size),
                   dtype, latent),
               .label = graph::RandomInt(
                   StreamOf(replica, "discriminator_label", step, batch_size),
                   Shape({batch_size}), 0, config.num_classes)});
  }
  return {.values = {{"loss", replica.AllReduce(update.loss, ReduceOp::kMean)}},
          .updates = update.updates};
}

}  // namespace replicant::learner
