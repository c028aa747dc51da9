#include "models/resnet/network.h"

#include <fmt/format.h>

#include <array>

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/image.h"
#include "engine/graph/ops/pool.h"
#include "engine/graph/ops/shape_ops.h"

namespace replicant::models::resnet {
namespace {

constexpr std::array<int64_t, 4> kBlocks18 = {2, 2, 2, 2};
constexpr std::array<int64_t, 4> kBlocks50 = {3, 4, 6, 3};
// Ratio of a bottleneck's output channels to its inner channels.
constexpr int64_t kExpansion = 4;

struct ConvSizes {
  int64_t in, out, kernel, stride;
};

nn::Conv2d AddConv(Graph& graph, const std::string& name,
                   const ConvSizes& sizes, DType dtype) {
  return {graph,
          name,
          sizes.in,
          sizes.out,
          sizes.kernel,
          {.stride = sizes.stride, .padding = sizes.kernel / 2},
          {.weight = nn::HeNormalFanOut(), .has_bias = false, .dtype = dtype}};
}

Output Apply(const nn::BatchNorm& norm, Output x,
             const nn::NormEpilogue& epilogue, std::vector<Output>* updates) {
  return updates == nullptr ? norm.Infer(x, epilogue)
                            : norm.Train(x, updates, epilogue);
}

// Normalises the colors of pixels as torchvision's weights expect.
Output NormalizeColors(Output image, DType dtype) {
  Graph& graph = *image.graph;
  // mean and standard deviation of ImageNet's training images
  const auto colors = [&](std::array<double, 3> values) {
    HostTensor tensor(dtype, Shape({3}));
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::kF64) {
        tensor.MutableSpan<double>()[i] = values[i];
      } else {
        tensor.MutableSpan<float>()[i] = static_cast<float>(values[i]);
      }
    }
    return graph.Constant(tensor.view());
  };
  const Output x = graph::NormalizePixels(image, dtype, 1.0 / 255.0, 0.0);
  return graph::Div(graph::Sub(x, colors({0.485, 0.456, 0.406})),
                    colors({0.229, 0.224, 0.225}));
}

}  // namespace

Block::Block(Graph& graph, const ResNetConfig& config,
             const nn::BatchNormLayerOptions& norm, int64_t in, int64_t width,
             int64_t stride)
    : out_channels_(config.depth == Depth::k50 ? width * kExpansion : width) {
  struct Layer {
    int64_t out, kernel, stride;
  };
  const std::vector<Layer> layers =
      config.depth == Depth::k50
          ? std::vector<Layer>{{width, 1, 1},
                               {width, 3, stride},
                               {out_channels_, 1, 1}}
          : std::vector<Layer>{{width, 3, stride}, {out_channels_, 3, 1}};
  int64_t channels = in;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = layers[i];
    convs_.push_back(AddConv(graph, fmt::format("conv{}", i + 1),
                             {channels, layer.out, layer.kernel, layer.stride},
                             norm.dtype));
    nn::BatchNormLayerOptions own_norm = norm;
    if (config.has_zero_gamma && i + 1 == layers.size()) {
      own_norm.weight = nn::Constant(0.0);
    }
    norms_.emplace_back(graph, fmt::format("bn{}", i + 1), layer.out, own_norm);
    channels = layer.out;
  }
  if (stride != 1 || in != out_channels_) {
    const Graph::Scope scope(graph, "downsample");
    shortcut_conv_.emplace(
        AddConv(graph, "0", {in, out_channels_, 1, stride}, norm.dtype));
    shortcut_norm_.emplace(graph, "1", out_channels_, norm);
  }
}

Output Block::operator()(Output x, std::vector<Output>* updates) const {
  Output h = x;
  for (size_t i = 0; i + 1 < convs_.size(); ++i) {
    h = Apply(norms_[i], convs_[i](h), {.has_relu = true}, updates);
  }
  h = convs_.back()(h);
  Output shortcut = x;
  if (shortcut_conv_) {
    shortcut = Apply(*shortcut_norm_, (*shortcut_conv_)(x), {}, updates);
  }
  return Apply(norms_.back(), h, {.has_relu = true, .residual = shortcut},
               updates);
}

ResNet::ResNet(nn::ReplicaContext& replica, const ResNetConfig& config,
               DType dtype, CallSite site)
    : dtype_(dtype),
      num_devices_(replica.num_logical_devices()),
      has_pool_(config.stem == Stem::kImageNet) {
  Graph& graph = replica.graph();
  const Graph::SiteScope site_scope(graph, site);
  const auto add_head = [&](int64_t in) {
    head_.emplace(graph, "fc", in, config.num_classes,
                  nn::LayerOptions{.dtype = dtype});
  };
  if (config.depth == Depth::kLinear) {
    add_head(config.image_size * config.image_size * 3);
    return;
  }
  const nn::BatchNormLayerOptions norm{
      .dtype = dtype,
      .gather = GatherFor(replica, config.batch_norm_statistics)};
  conv_ = has_pool_ ? AddConv(graph, "conv1", {3, config.width, 7, 2}, dtype)
                    : AddConv(graph, "conv1", {3, config.width, 3, 1}, dtype);
  norm_.emplace(graph, "bn1", config.width, norm);

  const auto& counts = config.depth == Depth::k50 ? kBlocks50 : kBlocks18;
  int64_t channels = config.width;
  int64_t width = config.width;
  for (size_t stage = 0; stage < counts.size(); ++stage, width *= 2) {
    const Graph::Scope scope(graph, fmt::format("layer{}", stage + 1));
    for (int64_t i = 0; i < counts[stage]; ++i) {
      const Graph::Scope block_scope(graph, std::to_string(i));
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      blocks_.emplace_back(graph, config, norm, channels, width, stride);
      channels = blocks_.back().out_channels();
    }
  }
  add_head(channels);
}

Output ResNet::Features(Output image, std::vector<Output>* updates,
                        CallSite site) const {
  const Graph::SiteScope scope(image, site);
  Output x = NormalizeColors(image, dtype_);
  if (blocks_.empty()) {
    const int64_t rows = x.shape()[0];
    return graph::Reshape(x, {rows, x.shape().num_elements() / rows});
  }
  x = (*conv_)(x);
  x = Apply(*norm_, x, {.has_relu = true}, updates);
  if (has_pool_) {
    x = graph::MaxPool2d(x, {.window = 3, .stride = 2, .padding = 1});
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Graph::DeviceScope device = DeviceOf(*image.graph, i);
    x = blocks_[i](x, updates);
  }
  const Graph::DeviceScope device = LastDevice(*image.graph);
  return graph::GlobalAveragePool(x);
}

Output ResNet::Classify(Output features, CallSite site) const {
  const Graph::SiteScope scope(features, site);
  const Graph::DeviceScope device = LastDevice(*features.graph);
  return (*head_)(features);
}

Graph::DeviceScope ResNet::DeviceOf(Graph& graph, size_t block) const {
  return nn::DeviceOfPart(graph, block, blocks_.size(), num_devices_);
}

Graph::DeviceScope ResNet::LastDevice(Graph& graph) const {
  if (blocks_.empty()) return {graph, 0};
  return DeviceOf(graph, blocks_.size() - 1);
}

}  // namespace replicant::models::resnet
