#pragma once

#include <optional>
#include <vector>

#include "core/graph/graph.h"
#include "core/nn/layers.h"
#include "models/resnet/config.h"

// Residual networks (arXiv:1512.03385; v1.5: the stride of a bottleneck is at
// its 3x3 convolution). Variables have the names of torchvision's
// models.resnet18 and resnet50, with '/' for '.': "layer1/0/conv1/weight".
//
// Letters: B batch, H W C image, K classes.
namespace replicant::models::resnet {

using graph::CallSite;
using graph::Graph;
using graph::Output;

// Convolutions, each with a batch norm, around which the input is added.
class Block {
 public:
  // The name scope is open. `norm` has the dtype, `width` is the channels
  // within.
  Block(Graph& graph, const ResNetConfig& config,
        const nn::BatchNormLayerOptions& norm, int64_t in, int64_t width,
        int64_t stride, CallSite site);

  // [B, H, W, in] -> [B, H / stride, W / stride, out_channels()]. Without
  // `updates`: with the running statistics.
  Output operator()(Output x, std::vector<Output>* updates,
                    CallSite site) const;
  int64_t out_channels() const { return out_channels_; }

 private:
  int64_t out_channels_;
  std::vector<nn::Conv2d> convs_;
  std::vector<nn::BatchNorm> norms_;
  // what brings the input to the shape of the result; none where it has it
  std::optional<nn::Conv2d> shortcut_conv_;
  std::optional<nn::BatchNorm> shortcut_norm_;
};

class ResNet {
 public:
  // `dtype` is that of parameters and computation. Batch norms are over all
  // replicas if the configuration says so, and blocks are divided evenly among
  // the logical devices, in their order.
  ResNet(Graph& graph, const ResNetConfig& config, DType dtype = DType::kF32,
         const nn::ReplicaHooks& replicas = {},
         CallSite site = CallSite::Here());

  // Images [B, H, W, 3] u8 to logits [B, K]. Pixels are normalised by
  // ImageNet's mean and standard deviation, as for torchvision's weights.
  // With `updates`, to which the updates of the running statistics are added,
  // the norms use those of the batch; without (null), the running ones.
  Output operator()(Output image, std::vector<Output>* updates,
                    CallSite site = CallSite::Here()) const;

 private:
  // Where a block is.
  Graph::DeviceScope DeviceOf(Graph& graph, size_t block) const;

  DType dtype_;
  int num_devices_;
  bool has_pool_;
  nn::Conv2d conv_;
  nn::BatchNorm norm_;
  std::vector<Block> blocks_;
  std::optional<nn::Dense> head_;
};

}  // namespace replicant::models::resnet
