#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/config/reader.h"
#include "models/resnet/config.h"

// The description of a network whose features score generated images: a YAML
// file next to its weights. config.cc has the keys, their ranges and their
// meaning.
namespace replicant::models::features {

enum class LayerKind {
  kConv,
  kBatchNorm,
  kRelu,
  kMaxPool,
  kAveragePool,
  kGlobalAveragePool,
  kConcat,
  kAdd,
  kLinear,
};

struct LayerConfig {
  LayerKind op = LayerKind::kRelu;
  std::string name;               // empty: no later layer names it
  std::vector<std::string> from;  // empty: the layer before, or the image
  std::string weights;            // prefix of its tensors in the file
  int64_t window = 3;
  int64_t stride = 1;
  std::vector<int64_t> padding = {0, 0};  // rows and columns, on each side
  // whether the mean of a pool includes the padding
  bool has_padding_in_mean = false;
  double epsilon = 1e-5;

  static LayerConfig Read(config::Reader& reader);
};

struct FeatureNetworkConfig {
  // If set, the network is a ResNet, and the fields below are ignored.
  std::optional<resnet::ResNetConfig> resnet;
  int64_t image_size = 299;  // pixels
  // of the colours, whose range is [0, 1]
  std::vector<double> mean = {0.5, 0.5, 0.5};
  std::vector<double> deviation = {0.5, 0.5, 0.5};
  std::vector<LayerConfig> layers;
  // names of the layers with these outputs
  std::string features;
  std::string logits;  // empty for none

  static FeatureNetworkConfig Read(config::Reader& reader);

  int64_t side() const { return resnet ? resnet->image_size : image_size; }
};

// The description of a ResNet, as a YAML file.
std::string DescriptionOf(const resnet::ResNetConfig& config);

}  // namespace replicant::models::features
