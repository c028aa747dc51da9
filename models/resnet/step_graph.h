#pragma once

#include <cstdint>

#include "base/config/reader.h"
#include "engine/nn/step_graph.h"
#include "models/resnet/config.h"

namespace replicant::models::resnet {

enum class GraphKind { kTrain, kEvaluate };

// A ResNet and its training outside of a run. The programs workload_probe and
// bench_learner read it.
struct StepGraphConfig {
  ResNetConfig model;
  int64_t batch_size = 32;
  GraphKind kind = GraphKind::kTrain;
  int64_t seed = 0;

  static StepGraphConfig Read(config::Reader& reader);
};

// Builds the graph of one step.
//   kTrain     the whole update: loss "loss", outputs "accuracy" and "logits"
//   kEvaluate  output "logits", with the running statistics
nn::StepGraph BuildStepGraph(const StepGraphConfig& config, DType dtype);

}  // namespace replicant::models::resnet
