#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config/reader.h"
#include "models/norm_statistics.h"

// Configuration of a residual network and its training (arXiv:1512.03385,
// arXiv:1706.02677): section `resnet50` of a run. config.cc has the keys, their
// ranges and their meaning.
namespace replicant::models::resnet {

// kLinear: no hidden layers, a linear classifier of the pixels.
enum class Depth { kLinear, k18, k50 };
enum class Stem { kImageNet, kSmall };
enum class Schedule { kSteps, kCosine };
enum class OptimizerKind { kSgd, kLars };

struct SgdConfig {
  OptimizerKind kind = OptimizerKind::kSgd;
  double trust_coefficient = 0.001;  // kLars
  double learning_rate = 0.1;
  double momentum = 0.9;
  double weight_decay = 1e-4;
  int64_t warm_up_steps = 0;
  Schedule schedule = Schedule::kSteps;
  std::vector<int64_t> decay_steps;
  double decay_factor = 0.1;
  int64_t total_steps = 0;  // of kCosine

  static SgdConfig Read(config::Reader& reader);
};

struct ResNetConfig {
  Depth depth = Depth::k50;
  Stem stem = Stem::kImageNet;
  int64_t width = 64;  // channels of the stem and the first stage
  int64_t image_size = 224;
  int64_t num_classes = 1000;
  double label_smoothing = 0.0;
  bool has_zero_gamma = true;
  NormStatistics batch_norm_statistics = NormStatistics::kPerReplica;
  // Parts of a replica's rows that pass through its logical devices in a
  // pipeline.
  int micro_batches = 1;
  SgdConfig optimizer;
  double average_decay = 0.0;             // of a moving average; 0: none
  int64_t evaluation_interval_steps = 0;  // 0: no evaluation
  std::string initial_variables;          // a file; empty for none
  bool has_initial_head = true;

  static ResNetConfig Read(config::Reader& reader);
};

}  // namespace replicant::models::resnet
