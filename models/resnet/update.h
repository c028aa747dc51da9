#pragma once

#include <vector>

#include "engine/nn/replica_context.h"
#include "engine/nn/trained_variables.h"
#include "models/resnet/network.h"

namespace replicant::models::resnet {

// A batch of labelled images.
struct Batch {
  Output image;  // [B, H, W, 3] u8
  Output label;  // [B] i32
};

// Learning rate, [] of `dtype`, of the update after `step` (i64[]) updates:
// linear warm-up, then the schedule.
Output LearningRate(const SgdConfig& config, Output step,
                    DType dtype = DType::kF32,
                    CallSite site = CallSite::Here());

// Scores of logits [B, K] against labels [B].
struct Score {
  Output loss;      // mean cross-entropy, without weight decay
  Output accuracy;  // share of images whose label has the largest logit
};
Score BuildScore(Output logits, Output label, const ResNetConfig& config,
                 CallSite site = CallSite::Here());

// Adds the network for use after the training: with the running statistics, of
// the averaged variables if there are any (average_decay). Images [B, H, W, 3]
// u8 to logits [B, K].
Output BuildLogits(Graph& graph, const ResNetConfig& config, DType dtype,
                   Output image, CallSite site = CallSite::Here());

// Sums over the rows of a batch, f32 [], each row times its weight.
struct Evaluation {
  Output loss;  // cross-entropy, without label smoothing
  // Rows whose label's logit is the largest, and among the 5 largest; an equal
  // other logit counts as larger.
  Output top1, top5;
  Output weight;
};
// Adds an evaluation of BuildLogits(). `weight` is f32 [B].
Evaluation BuildEvaluation(Graph& graph, const ResNetConfig& config,
                           DType dtype, const Batch& batch, Output weight,
                           CallSite site = CallSite::Here());

struct Update {
  Score score;
  Output logits;  // [B, K]
  nn::TrainedVariables trained;
  std::vector<Output> updates;
};

// Adds one training step: forward, backward, SGD with the learning rate's
// schedule, the running statistics and the averages. The variable "step" counts
// updates.
//
// Micro-batches (ResNetConfig::micro_batches) go forward one after the other,
// then backward from the last one on, and the step updates once, with the mean
// of their gradients. Several logical devices form a pipeline: a device begins
// the next micro-batch while the others process earlier ones (Huang et al.,
// "GPipe", arXiv:1811.06965). Throws InvalidArgument if they do not divide the
// batch.
Update BuildUpdate(nn::ReplicaContext& replica, const ResNetConfig& config,
                   DType dtype, const Batch& batch,
                   CallSite site = CallSite::Here());

}  // namespace replicant::models::resnet
