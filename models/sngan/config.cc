#include "models/sngan/config.h"

#include <fmt/format.h>

namespace replicant::models::sngan {

AdamConfig AdamConfig::Read(config::Reader& reader) {
  AdamConfig c;
  reader.Field("learning_rate", &c.learning_rate, {0.0, 1.0},
               "initial learning rate of Adam");
  reader.Field(
      "discriminator_learning_rate", &c.discriminator_learning_rate, {0.0, 1.0},
      "learning rate of the discriminator, if different (the two time-scale "
      "update rule, arXiv:1706.08500); null: learning_rate");
  reader.Field("beta1", &c.beta1, {0.0, 0.9999},
               "decay rate of Adam's first moments");
  reader.Field("beta2", &c.beta2, {0.0, 0.99999},
               "decay rate of Adam's second moments");
  reader.Field("decay_begin", &c.decay_begin, {0, 1'000'000'000},
               "generator updates before the learning rate starts to fall "
               "linearly");
  reader.Field("decay_end", &c.decay_end, {0, 1'000'000'000},
               "generator updates after which the learning rate is 0; 0: the "
               "learning rate is constant");
  if (c.decay_end == 0 && c.decay_begin != 0) {
    reader.Error("decay_begin", "needs decay_end, where the fall ends");
  }
  if (c.decay_end != 0 && c.decay_end <= c.decay_begin) {
    reader.Error("decay_end",
                 fmt::format("want 0 or more than decay_begin, {}, got {}",
                             c.decay_begin, c.decay_end));
  }
  return c;
}

SnganConfig SnganConfig::Read(config::Reader& reader) {
  SnganConfig c;
  reader.Field("image_size", &c.image_size,
               {{"32", ImageSize::k32},
                {"64", ImageSize::k64},
                {"128", ImageSize::k128}},
               "side of an image in pixels; it also determines the "
               "depth and widths of the networks");
  reader.Field("num_classes", &c.num_classes, {1, 1 << 20},
               "number of classes");
  reader.Field("latent_size", &c.latent_size, {1, 1 << 16},
               "size of the normal latent vector of an image");
  reader.Field("generator_channels", &c.generator_channels, {1, 1024},
               "base number of channels of the generator; null: 256 for 32 "
               "pixels, else 64");
  reader.Field("discriminator_channels", &c.discriminator_channels, {1, 1024},
               "base number of channels of the discriminator; null: 128 for "
               "32 pixels, else 64");
  reader.Field("discriminator_steps", &c.discriminator_steps, {1, 100},
               "discriminator updates per generator update");
  reader.Field("joint_updates", &c.joint_updates,
               "one step makes both updates on one batch: the discriminator's, "
               "then the generator's by the new discriminator. Needs "
               "discriminator_steps 1");
  if (c.joint_updates && c.discriminator_steps != 1) {
    reader.Error("joint_updates",
                 fmt::format("a joint step has one update of each network, but "
                             "discriminator_steps is {}; allowed: 1",
                             c.discriminator_steps));
  }
  ReadNormStatistics(reader, &c.batch_norm_statistics);
  reader.Section("optimizer", &c.optimizer,
                 "Adam; each network has its own moments");
  reader.Field("average_decay", &c.average_decay, {0.0, 0.999999},
               "decay rate of a moving average of the generator's variables, "
               "which makes the samples; 0 for none");
  reader.Field("sample_interval_steps", &c.sample_interval_steps,
               {0, 1'000'000'000},
               "steps between pictures of generated images, always of the same "
               "latent vectors: a row for each of the first classes; 0 for "
               "none");
  reader.Field("evaluation_features", &c.evaluation_features,
               "weights of the network whose features an evaluation (FID, "
               "Inception Score) compares: a safetensors file, such as the "
               "export of a resnet50, relative to the file that holds this "
               "key; empty for no evaluation");
  reader.Field("evaluation_network", &c.evaluation_network,
               "description of that network, a YAML file, relative to the file "
               "that holds this key; empty: the file of the same name with "
               ".yaml");
  reader.Field(
      "num_evaluation_images", &c.num_evaluation_images, {2, 10'000'000},
      "number of training images in an evaluation, and of generated images");
  reader.Field("evaluation_interval_steps", &c.evaluation_interval_steps,
               {0, 1'000'000'000},
               "steps between evaluations; 0: only by learner --evaluate");
  if (c.evaluation_features.empty() && c.evaluation_interval_steps > 0) {
    reader.Error("evaluation_interval_steps",
                 "needs evaluation_features; allowed without: 0");
  }
  return c;
}

int64_t SnganConfig::side() const {
  switch (image_size) {
    case ImageSize::k32:
      return 32;
    case ImageSize::k64:
      return 64;
    case ImageSize::k128:
      break;
  }
  return 128;
}

std::vector<int64_t> SnganConfig::GeneratorChannels() const {
  const bool is_small = image_size == ImageSize::k32;
  const int64_t unit = generator_channels.value_or(is_small ? 256 : 64);
  if (is_small) return {unit, unit, unit, unit};
  std::vector<int64_t> channels = {16 * unit, 8 * unit, 4 * unit, 2 * unit,
                                   unit};
  if (image_size == ImageSize::k128) {
    channels.insert(channels.begin(), 16 * unit);
  }
  return channels;
}

std::vector<int64_t> SnganConfig::DiscriminatorChannels() const {
  const bool is_small = image_size == ImageSize::k32;
  const int64_t unit = discriminator_channels.value_or(is_small ? 128 : 64);
  if (is_small) return {unit, unit, unit, unit};
  std::vector<int64_t> channels = {unit, 2 * unit, 4 * unit, 8 * unit,
                                   16 * unit};
  if (image_size == ImageSize::k128) channels.push_back(16 * unit);
  return channels;
}

}  // namespace replicant::models::sngan
