#pragma once

#include <cstdint>

#include "core/config/reader.h"
#include "learner/workloads/resnet50/config.h"
#include "learner/workloads/workload_graph.h"

namespace replicant::learner::resnet50 {

enum class GraphKind { kTrain, kEvaluate };

// A ResNet without the system around it: what workload_probe and bench_learner
// read.
struct WorkloadConfig {
  ResNetConfig model;
  int64_t batch_size = 32;
  GraphKind kind = GraphKind::kTrain;
  int64_t seed = 0;

  static WorkloadConfig Read(config::Reader& reader);
};

// kTrain: the whole update, with loss "loss" and outputs "accuracy" and
// "logits". kEvaluate: "logits" with the running statistics.
WorkloadGraph BuildWorkload(const WorkloadConfig& config, DType dtype);

}  // namespace replicant::learner::resnet50
