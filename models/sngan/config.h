#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/config/reader.h"
#include "models/norm_statistics.h"

// Configuration of a class-conditional SN-GAN and its training
// (arXiv:1802.05957, arXiv:1802.05637): section `sngan` of a run. config.cc has
// the keys, their ranges and their meaning.
namespace replicant::models::sngan {

enum class ImageSize { k32, k64, k128 };

struct AdamConfig {
  double learning_rate = 2e-4;
  std::optional<double> discriminator_learning_rate;  // none: learning_rate
  double beta1 = 0.0;
  double beta2 = 0.9;
  int64_t decay_begin = 0;
  int64_t decay_end = 0;

  static AdamConfig Read(config::Reader& reader);
};

struct SnganConfig {
  ImageSize image_size = ImageSize::k32;
  int64_t num_classes = 10;
  int64_t latent_size = 128;
  // none: the paper's number
  std::optional<int64_t> generator_channels;
  std::optional<int64_t> discriminator_channels;
  int64_t discriminator_steps = 5;
  bool joint_updates = false;
  // of the generator's batch norms
  NormStatistics batch_norm_statistics = NormStatistics::kSync;
  AdamConfig optimizer;
  double average_decay = 0.0;  // of the generator's moving average; 0: none
  int64_t sample_interval_steps = 0;  // 0: no samples
  // network of the evaluation's features: weights and description; an empty
  // description lies next to the weights
  std::string evaluation_features, evaluation_network;
  int64_t num_evaluation_images = 5000;
  int64_t evaluation_interval_steps = 0;  // 0: no evaluation in training

  static SnganConfig Read(config::Reader& reader);

  // Side of an image in pixels.
  int64_t side() const;
  // Channels before, between and after the generator's blocks. The first number
  // belongs to the initial 4x4 image.
  std::vector<int64_t> GeneratorChannels() const;
  // Output channels of each of the discriminator's blocks.
  std::vector<int64_t> DiscriminatorChannels() const;
  // Number of the discriminator's first blocks that halve the image.
  int64_t num_halvings() const { return image_size == ImageSize::k32 ? 2 : 5; }
};

}  // namespace replicant::models::sngan
