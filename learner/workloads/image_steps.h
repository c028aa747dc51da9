#pragma once

#include <vector>

#include "models/resnet/config.h"
#include "models/sngan/config.h"
#include "replicator/replicator.h"

// The updates of the image models (update.h in models/resnet and models/sngan)
// as steps of one replica, on its rows: inputs "image" [B, H, W, 3] u8 and
// "label" [B] i32. Any number of replicas computes the update of one replica
// with all rows, if batch norms use all replicas.
//
// `dtype` is the type of parameters and computation.
namespace replicant::learner {

// Values: "loss" and "accuracy", [], of all rows.
replicator::StepOutputs BuildResNetStep(
    replicator::ReplicaContext& replica, const replicator::Inputs& inputs,
    const models::resnet::ResNetConfig& config, DType dtype = DType::kF32);

// Evaluates the network on a batch that also has "weight" [B] f32. Values:
// "loss", "top1", "top5" and "weight", [], sums over all rows.
replicator::StepOutputs BuildResNetEvaluation(
    replicator::ReplicaContext& replica, const replicator::Inputs& inputs,
    const models::resnet::ResNetConfig& config);

// The network that a step of SN-GAN updates.
enum class SnganNetwork { kDiscriminator, kGenerator };

// Generates images with the running statistics of batch norm, using the
// averaged variables if there are any (average_decay): z [B, latent_size] f32
// and labels [B] i32 to [B, H, W, 3] in (-1, 1).
graph::Output BuildSnganSamples(graph::Graph& graph, graph::Output z,
                                graph::Output label,
                                const models::sngan::SnganConfig& config);

// Value: "loss", [], of all rows. Latents and generated labels depend on the
// global row. The generator's step uses the batch's labels only.
replicator::StepOutputs BuildSnganStep(replicator::ReplicaContext& replica,
                                       const replicator::Inputs& inputs,
                                       const models::sngan::SnganConfig& config,
                                       SnganNetwork network,
                                       DType dtype = DType::kF32);

// Both updates as the phases of one step (Replicator::BuildJoint), the
// discriminator's first. Values: "discriminator_loss" and "generator_loss".
std::vector<replicator::StepFn> JointSnganPhases(
    const models::sngan::SnganConfig& config, DType dtype = DType::kF32);

}  // namespace replicant::learner
