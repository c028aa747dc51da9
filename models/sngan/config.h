#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/config/reader.h"
#include "models/norm_statistics.h"

// What a class-conditional SN-GAN and its training are made of
// (arXiv:1802.05957, arXiv:1802.05637), section `sngan` of a run. The keys,
// their ranges and meaning are in config.cc.
namespace replicant::models::sngan {

enum class ImageSize { k32, k64, k128 };

struct AdamConfig {
  double learning_rate = 2e-4;
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
  // none: the paper's
  std::optional<int64_t> generator_channels;
  std::optional<int64_t> discriminator_channels;
  int64_t discriminator_steps = 5;
  // the generator's
  NormStatistics batch_norm_statistics = NormStatistics::kSync;
  AdamConfig optimizer;

  static SnganConfig Read(config::Reader& reader);

  // Pixels of a side.
  int64_t side() const;
  // Channels between the generator's blocks, the first those of its 4x4 start.
  std::vector<int64_t> GeneratorChannels() const;
  // Channels of the results of the discriminator's blocks.
  std::vector<int64_t> DiscriminatorChannels() const;
  // How many of these blocks, the first, halve the image.
  int64_t num_halvings() const { return image_size == ImageSize::k32 ? 2 : 5; }
};

}  // namespace replicant::models::sngan
