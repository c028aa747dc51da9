#pragma once

#include <optional>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/nn/layers.h"
#include "engine/nn/replica_context.h"
#include "models/resnet/config.h"

// Residual networks (arXiv:1512.03385), version 1.5: a bottleneck has its
// stride at the 3x3 convolution. Variables have the names of torchvision's
// models.resnet18 and resnet50, with '/' for '.': "layer1/0/conv1/weight".
//
// Letters: B batch, H W C image, F features, K classes.
namespace replicant::models::resnet {

using graph::CallSite;
using graph::Graph;
using graph::Output;

// A residual block: convolutions, each with a batch norm, and a shortcut that
// adds the input. ResNet calls it under a name scope and a site scope.
class Block {
 public:
  // `width` is the number of channels inside the block, norm.dtype the dtype of
  // all layers.
  Block(Graph& graph, const ResNetConfig& config,
        const nn::BatchNormLayerOptions& norm, int64_t in, int64_t width,
        int64_t stride);

  // [B, H, W, in] -> [B, H / stride, W / stride, out_channels()]. Null
  // `updates`: the norms use the running statistics.
  Output operator()(Output x, std::vector<Output>* updates) const;
  int64_t out_channels() const { return out_channels_; }

 private:
  int64_t out_channels_;
  std::vector<nn::Conv2d> convs_;
  std::vector<nn::BatchNorm> norms_;
  // project the input to the shape of the result; none if the shapes are equal
  std::optional<nn::Conv2d> shortcut_conv_;
  std::optional<nn::BatchNorm> shortcut_norm_;
};

class ResNet {
 public:
  // `dtype` is the type of parameters and computation. `replica` gathers the
  // statistics of batch norms (batch_norm_statistics: sync) and outlives the
  // network. The blocks are divided evenly among its logical devices, in order.
  ResNet(nn::ReplicaContext& replica, const ResNetConfig& config,
         DType dtype = DType::kF32, CallSite site = CallSite::Here());

  // Images [B, H, W, 3] u8 to logits [B, K]: Classify(Features()).
  Output operator()(Output image, std::vector<Output>* updates,
                    CallSite site = CallSite::Here()) const {
    return Classify(Features(image, updates, site), site);
  }
  // Images to the means [B, F] of the last block's channels. Pixels are
  // normalised by ImageNet's mean and standard deviation, as for torchvision's
  // weights. Norms use the statistics of the batch, and the updates of the
  // running statistics are appended to `updates`. Null `updates`: norms use the
  // running statistics.
  Output Features(Output image, std::vector<Output>* updates,
                  CallSite site = CallSite::Here()) const;
  Output Classify(Output features, CallSite site = CallSite::Here()) const;
  // Opens the scope of the logical device that the logits are on.
  [[nodiscard]] Graph::DeviceScope LastDevice(Graph& graph) const;

 private:
  // Opens the device scope of block number `block`.
  Graph::DeviceScope DeviceOf(Graph& graph, size_t block) const;

  DType dtype_;
  int num_devices_;
  bool has_pool_;
  // set by the constructor; of a linear classifier the head only
  std::optional<nn::Conv2d> conv_;
  std::optional<nn::BatchNorm> norm_;
  std::vector<Block> blocks_;
  std::optional<nn::Dense> head_;
};

}  // namespace replicant::models::resnet
