#pragma once

#include <cstdint>

#include "core/config/reader.h"
#include "core/nn/step_graph.h"
#include "models/sngan/config.h"

namespace replicant::models::sngan {

enum class GraphKind { kBoth, kDiscriminator, kGenerator, kEvaluate };

// An SN-GAN without the system around it: what workload_probe and bench_learner
// read.
struct StepGraphConfig {
  SnganConfig model;
  int64_t batch_size = 16;
  GraphKind kind = GraphKind::kBoth;
  int64_t seed = 0;

  static StepGraphConfig Read(config::Reader& reader);
};

// kDiscriminator: its update, with loss "discriminator_loss" and output
// "discriminator_logits"; inputs "image", "label", "z", "fake_label".
// kGenerator: the same of the generator; inputs "generator_z",
// "generator_label". kBoth: one after the other. kEvaluate: outputs "image" and
// "logits", with running statistics and vectors as they are; inputs "z",
// "fake_label".
nn::StepGraph BuildStepGraph(const StepGraphConfig& config, DType dtype);

}  // namespace replicant::models::sngan
