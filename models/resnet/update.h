#pragma once

#include <vector>

#include "core/nn/replica_hooks.h"
#include "core/nn/trained_variables.h"
#include "models/resnet/network.h"

namespace replicant::models::resnet {

// What an update learns from.
struct Batch {
  Output image;  // [B, H, W, 3] u8
  Output label;  // [B] i32
};
// Inputs "image" and "label" of the graph.
Batch AddBatchInputs(Graph& graph, const ResNetConfig& config,
                     int64_t batch_size, CallSite site = CallSite::Here());

// The learning rate of the update that `step` (i64[]) others came before:
// f32[].
Output LearningRate(const SgdConfig& config, Output step,
                    CallSite site = CallSite::Here());

struct Update {
  Output loss;      // mean cross-entropy, weight decay not in it
  Output accuracy;  // share of images whose class has the largest logit
  Output logits;    // [B, K]
  nn::TrainedVariables trained;
  std::vector<Output> updates;
};

// One step: forward, backward, SGD with the learning rate's schedule, running
// statistics. Counts updates in the variable "step".
Update BuildUpdate(Graph& graph, const ResNetConfig& config, DType dtype,
                   const Batch& batch, const nn::ReplicaHooks& replicas = {},
                   CallSite site = CallSite::Here());

}  // namespace replicant::models::resnet
