#pragma once

#include <cstdint>

#include "base/config/reader.h"
#include "models/resnet/config.h"
#include "tools/probe/step_graph.h"

namespace replicant::probe::resnet {

enum class GraphKind { kTrain, kEvaluate };

// A ResNet and its training outside of a run.
struct StepGraphConfig {
  models::resnet::ResNetConfig model;
  int64_t batch_size = 32;
  GraphKind kind = GraphKind::kTrain;
  int64_t seed = 0;

  static StepGraphConfig Read(config::Reader& reader);
};

// Builds the graph of one step.
//   kTrain     the whole update: loss "loss", outputs "accuracy" and "logits"
//   kEvaluate  output "logits", with the running statistics
StepGraph BuildStepGraph(const StepGraphConfig& config, DType dtype);

}  // namespace replicant::probe::resnet
