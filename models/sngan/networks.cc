#include "models/sngan/networks.h"

#include <numbers>
#include <string>

#include "engine/graph/ops/conv.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/indexing.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/pool.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "models/norm_statistics.h"

namespace replicant::models::sngan {
namespace {

// Side of the image before the generator's first block.
constexpr int64_t kFirstSide = 4;

// Initial weights as in the authors' code: Glorot's, larger in the blocks.
nn::Initializer Glorot(double gain) {
  return nn::Scaled(nn::GlorotUniform(), gain);
}
constexpr double kBlockGain = std::numbers::sqrt2;

struct SnganConvSizes {
  int64_t in, out, kernel;
};

nn::Conv2d AddConv(Graph& graph, const std::string& name,
                   const SnganConvSizes& sizes, double gain, DType dtype) {
  return {graph,
          name,
          sizes.in,
          sizes.out,
          sizes.kernel,
          {.padding = sizes.kernel / 2},
          {.weight = Glorot(gain), .bias = nn::Constant(0.0), .dtype = dtype}};
}

nn::SpectralNorm AddWeight(Graph& graph, const std::string& name,
                           const Shape& shape, double gain, DType dtype) {
  const Graph::Scope scope(graph, name);
  return {graph, shape, Glorot(gain), dtype};
}

NormalisedLayer AddLayer(Graph& graph, const std::string& name,
                         const Shape& shape, double gain, DType dtype) {
  const nn::SpectralNorm weight = AddWeight(graph, name, shape, gain, dtype);
  const Graph::Scope scope(graph, name);
  return {weight,
          graph.AddVariable(
              {.name = "bias", .dtype = dtype, .shape = Shape({shape[0]})})};
}

Output WeightOf(const nn::SpectralNorm& norm, std::vector<Output>* updates) {
  return updates == nullptr ? norm.Infer() : norm.Train(updates);
}

Output Convolve(const NormalisedLayer& layer, Output x,
                std::vector<Output>* updates) {
  const Output weight = WeightOf(layer.weight, updates);
  return graph::Add(
      graph::Conv2d(x, weight, {.padding = weight.shape()[2] / 2}),
      x.graph->Read(layer.bias));
}

Output Apply(const nn::ConditionalBatchNorm& norm, Output x, Output labels,
             std::vector<Output>* updates) {
  return updates == nullptr
             ? norm.Infer(x, labels, {.has_relu = true})
             : norm.Train(x, labels, updates, {.has_relu = true});
}

}  // namespace

Generator::Generator(nn::ReplicaContext& replica, const SnganConfig& config,
                     DType dtype, CallSite site)
    : num_devices_(replica.num_logical_devices()) {
  Graph& graph = replica.graph();
  const Graph::SiteScope site_scope(graph, site);
  const Graph::Scope scope(graph, "generator");
  const std::vector<int64_t> channels = config.GeneratorChannels();
  first_channels_ = channels.front();
  const nn::BatchNormLayerOptions norm{
      .dtype = dtype,
      .gather = GatherFor(replica, config.batch_norm_statistics)};
  linear_.emplace(
      graph, "linear", config.latent_size,
      kFirstSide * kFirstSide * first_channels_,
      nn::LayerOptions{
          .weight = Glorot(1.0), .bias = nn::Constant(0.0), .dtype = dtype});
  {
    const Graph::Scope blocks_scope(graph, "blocks");
    for (size_t i = 0; i + 1 < channels.size(); ++i) {
      const Graph::Scope block_scope(graph, std::to_string(i));
      const int64_t in = channels[i];
      const int64_t out = channels[i + 1];
      blocks_.push_back(
          {.norm1 = {graph, "norm1", config.num_classes, in, norm},
           .norm2 = {graph, "norm2", config.num_classes, out, norm},
           .conv1 = AddConv(graph, "conv1", {in, out, 3}, kBlockGain, dtype),
           .conv2 = AddConv(graph, "conv2", {out, out, 3}, kBlockGain, dtype),
           .shortcut = AddConv(graph, "shortcut", {in, out, 1}, 1.0, dtype)});
    }
  }
  norm_.emplace(graph, "norm", channels.back(), norm);
  conv_.emplace(AddConv(graph, "conv", {channels.back(), 3, 3}, 1.0, dtype));
}

Output Generator::operator()(Output latent, Output labels,
                             std::vector<Output>* updates,
                             CallSite site) const {
  const Graph::SiteScope scope(latent, site);
  Output x = graph::Reshape((*linear_)(latent),
                            {-1, kFirstSide, kFirstSide, first_channels_});
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    const Graph::DeviceScope device =
        nn::DeviceOfPart(*latent.graph, i, blocks_.size(), num_devices_);
    Output h = Apply(block.norm1, x, labels, updates);
    h = block.conv1(graph::UpsampleNearest2d(h, 2));
    h = Apply(block.norm2, h, labels, updates);
    h = block.conv2(h);
    // a 1x1 convolution commutes with the upsampling; before it, it costs a
    // quarter
    x = graph::Add(h, graph::UpsampleNearest2d(block.shortcut(x), 2));
  }
  const Graph::DeviceScope last(*latent.graph, num_devices_ - 1);
  const nn::NormEpilogue relu{.has_relu = true};
  x = updates == nullptr ? norm_->Infer(x, relu)
                         : norm_->Train(x, updates, relu);
  return graph::Tanh((*conv_)(x));
}

Discriminator::Discriminator(Graph& graph, const SnganConfig& config,
                             DType dtype, int num_devices, CallSite site)
    : num_devices_(num_devices) {
  const Graph::SiteScope site_scope(graph, site);
  const Graph::Scope scope(graph, "discriminator");
  const std::vector<int64_t> channels = config.DiscriminatorChannels();
  int64_t in = 3;
  for (size_t i = 0; i < channels.size(); ++i) {
    const Graph::Scope blocks_scope(graph, "blocks");
    const Graph::Scope block_scope(graph, std::to_string(i));
    const int64_t out = channels[i];
    const bool is_first = i == 0;
    const bool halves = static_cast<int64_t>(i) < config.num_halvings();
    // the first block changes the channels at its first convolution, the others
    // at their second
    const int64_t within = is_first ? out : in;
    Block block{.conv1 = AddLayer(graph, "conv1", Shape({within, in, 3, 3}),
                                  kBlockGain, dtype),
                .conv2 = AddLayer(graph, "conv2", Shape({out, within, 3, 3}),
                                  kBlockGain, dtype),
                .shortcut = {},
                .is_first = is_first,
                .halves = halves};
    if (halves || in != out) {
      block.shortcut =
          AddLayer(graph, "shortcut", Shape({out, in, 1, 1}), 1.0, dtype);
    }
    blocks_.push_back(block);
    in = out;
  }
  linear_ = AddLayer(graph, "linear", Shape({1, in}), 1.0, dtype);
  embedding_ = AddWeight(graph, "embedding", Shape({config.num_classes, in}),
                         1.0, dtype);
}

Output Discriminator::operator()(Output images, Output labels,
                                 std::vector<Output>* updates,
                                 CallSite site) const {
  const Graph::SiteScope scope(images, site);
  Output x = images;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    const Graph::DeviceScope device =
        nn::DeviceOfPart(*images.graph, i, blocks_.size(), num_devices_);
    Output h = block.is_first ? x : graph::Relu(x);
    h = graph::Relu(Convolve(block.conv1, h, updates));
    h = Convolve(block.conv2, h, updates);
    if (block.halves) {
      h = graph::AveragePool2d(h);
      x = graph::AveragePool2d(x);
    }
    // a 1x1 convolution commutes with the pooling; after it, it costs a quarter
    if (block.shortcut) x = Convolve(*block.shortcut, x, updates);
    x = graph::Add(h, x);
  }
  const Graph::DeviceScope last(*images.graph, num_devices_ - 1);
  // [B, C]
  const Output features = graph::ReduceSum(graph::Relu(x), {.axes = {1, 2}});
  const Output linear =
      graph::Add(graph::MatMul(features, WeightOf(linear_->weight, updates),
                               {.transpose_b = true}),
                 images.graph->Read(linear_->bias));
  const Output of_class =
      graph::Embedding(WeightOf(*embedding_, updates), labels);
  const Output projection =
      graph::ReduceSum(graph::Mul(features, of_class), {.axes = {1}});
  return graph::Add(graph::Reshape(linear, {-1}), projection);
}

}  // namespace replicant::models::sngan
