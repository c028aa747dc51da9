#pragma once

#include <cstdint>

#include "core/config/reader.h"
#include "core/nn/step_graph.h"
#include "models/resnet/config.h"

namespace replicant::models::resnet {

enum class GraphKind { kTrain, kEvaluate };

// A ResNet without the system around it: what workload_probe and bench_learner
// read.
struct StepGraphConfig {
  ResNetConfig model;
  int64_t batch_size = 32;
  GraphKind kind = GraphKind::kTrain;
  int64_t seed = 0;

  static StepGraphConfig Read(config::Reader& reader);
};

// kTrain: the whole update, with loss "loss" and outputs "accuracy" and
// "logits". kEvaluate: "logits" with the running statistics.
nn::StepGraph BuildStepGraph(const StepGraphConfig& config, DType dtype);

}  // namespace replicant::models::resnet
