#pragma once

#include <cstdint>

#include "base/config/reader.h"
#include "models/sngan/config.h"
#include "tools/probe/step_graph.h"

namespace replicant::probe::sngan {

enum class GraphKind { kBoth, kDiscriminator, kGenerator, kEvaluate };

// An SN-GAN and its training outside of a run.
struct StepGraphConfig {
  models::sngan::SnganConfig model;
  int64_t batch_size = 16;
  GraphKind kind = GraphKind::kBoth;
  int64_t seed = 0;

  static StepGraphConfig Read(config::Reader& reader);
};

// Builds the graph of one step.
//   kDiscriminator  the discriminator's update: inputs "image", "label", "z",
//                   "fake_label"; loss "discriminator_loss", output
//                   "discriminator_logits"
//   kGenerator      the generator's update: inputs "generator_z",
//                   "generator_label"; loss "generator_loss", output
//                   "generator_logits"
//   kBoth           the discriminator's update, then the generator's
//   kEvaluate       inputs "z", "fake_label"; outputs "image" and "logits",
//                   with the running statistics and without power
//                   iterations
StepGraph BuildStepGraph(const StepGraphConfig& config, DType dtype);

}  // namespace replicant::probe::sngan
