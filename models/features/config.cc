#include "models/features/config.h"

#include <fmt/format.h>

#include <set>

namespace replicant::models::features {
namespace {

// Names the first layer that cannot be built from those before it.
void CheckNames(config::Reader& reader, const FeatureNetworkConfig& c) {
  std::set<std::string> names = {"image"};
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const LayerConfig& layer = c.layers[i];
    for (const std::string& from : layer.from) {
      if (names.contains(from)) continue;
      reader.Error("layers", fmt::format("layer {} is from '{}', which is no "
                                         "layer before it",
                                         i, from));
      return;
    }
    if (!layer.name.empty() && !names.insert(layer.name).second) {
      reader.Error("layers", fmt::format("layer {}: the name '{}' is taken", i,
                                         layer.name));
      return;
    }
  }
  if (!names.contains(c.features)) {
    reader.Error("features",
                 fmt::format("no layer has the name '{}'", c.features));
  }
  if (!c.logits.empty() && !names.contains(c.logits)) {
    reader.Error("logits", fmt::format("no layer has the name '{}'", c.logits));
  }
}

}  // namespace

LayerConfig LayerConfig::Read(config::Reader& reader) {
  LayerConfig c;
  reader.Field("op", &c.op,
               {{"conv", LayerKind::kConv},
                {"batch_norm", LayerKind::kBatchNorm},
                {"relu", LayerKind::kRelu},
                {"max_pool", LayerKind::kMaxPool},
                {"average_pool", LayerKind::kAveragePool},
                {"global_average_pool", LayerKind::kGlobalAveragePool},
                {"concat", LayerKind::kConcat},
                {"add", LayerKind::kAdd},
                {"linear", LayerKind::kLinear}},
               "computation of the layer, as in the PyTorch module of this "
               "name; concat joins channels");
  reader.Field("name", &c.name, "name by which other layers are from this one");
  reader.Field("from", &c.from, {0, 64},
               "names of the layers that it takes, or image; none: the one "
               "before");
  reader.Field("weights", &c.weights,
               "conv, batch_norm, linear: name of its module in the weights");
  reader.Field("window", &c.window, {1, 1024}, "side of a pool's window");
  reader.Field("stride", &c.stride, {1, 1024}, "stride of a conv or pool");
  reader.Field("padding", &c.padding, {0, 1024}, {2, 2},
               "rows and columns that a conv or pool adds on each side");
  reader.Field("has_padding_in_mean", &c.has_padding_in_mean,
               "whether average_pool counts the padding");
  reader.Field("epsilon", &c.epsilon, {0.0, 1.0},
               "addend of batch_norm's variance");
  return c;
}

FeatureNetworkConfig FeatureNetworkConfig::Read(config::Reader& reader) {
  FeatureNetworkConfig c;
  if (reader.Has("resnet")) {
    resnet::ResNetConfig resnet;
    reader.Section("resnet", &resnet, "a ResNet, by the keys of resnet50");
    c.resnet = std::move(resnet);
    return c;
  }
  reader.Field("image_size", &c.image_size, {1, 4096},
               "side in pixels that images are resized to");
  reader.Field("mean", &c.mean, {-10.0, 10.0}, {3, 3},
               "mean of red, green and blue in [0, 1]");
  reader.Field("deviation", &c.deviation, {1e-6, 10.0}, {3, 3},
               "standard deviation of them");
  reader.Sections("layers", &c.layers, {1, 10'000}, "the layers, in order");
  reader.Field("features", &c.features, "name of the layer of the features");
  reader.Field("logits", &c.logits,
               "name of the layer of the logits of the classes; empty: there "
               "is no Inception Score");
  CheckNames(reader, c);
  return c;
}

std::string DescriptionOf(const resnet::ResNetConfig& config) {
  const char* depth = "linear";
  if (config.depth == resnet::Depth::k18) depth = "18";
  if (config.depth == resnet::Depth::k50) depth = "50";
  return fmt::format(
      "resnet:\n  depth: \"{}\"\n  stem: {}\n  width: {}\n  image_size: {}\n"
      "  num_classes: {}\n",
      depth, config.stem == resnet::Stem::kSmall ? "small" : "imagenet",
      config.width, config.image_size, config.num_classes);
}

}  // namespace replicant::models::features
