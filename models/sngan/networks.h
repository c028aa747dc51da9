#pragma once

#include <optional>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/nn/layers.h"
#include "engine/nn/replica_context.h"
#include "engine/nn/spectral_norm.h"
#include "models/sngan/config.h"

// The residual networks of SN-GAN with a projection discriminator
// (arXiv:1802.05957, appendix B.4; arXiv:1802.05637, figure 14). Their
// variables have the names of PyTorch modules (with '/' for '.'):
//
//   generator/linear, blocks/N/{norm1, conv1, norm2, conv2, shortcut}, norm,
//     conv
//   discriminator/blocks/N/{conv1, conv2, shortcut}, linear, embedding, each
//     with weight_orig, weight_u, weight_v and, but the last, bias
//
// Letters: B batch, H W C image, Z latent size.
namespace replicant::models::sngan {

using graph::CallSite;
using graph::Graph;
using graph::Output;
using graph::VariableId;

// Maps latent vectors and classes to images.
class Generator {
 public:
  // `dtype` is the type of parameters and computation. Batch norms use the
  // statistics that the configuration says of the replicas; `replica` outlives
  // the network. Blocks are divided among its logical devices.
  Generator(nn::ReplicaContext& replica, const SnganConfig& config,
            DType dtype = DType::kF32, CallSite site = CallSite::Here());

  // latent [B, Z], labels [B] i32 -> images [B, H, W, 3] in (-1, 1). Norms use
  // the statistics of the batch, and the updates of the running statistics are
  // appended to `updates`. Null `updates`: norms use the running statistics.
  Output operator()(Output latent, Output labels, std::vector<Output>* updates,
                    CallSite site = CallSite::Here()) const;

 private:
  // A residual block that doubles the side of the image.
  struct Block {
    nn::ConditionalBatchNorm norm1, norm2;
    nn::Conv2d conv1, conv2, shortcut;
  };

  int num_devices_;
  int64_t first_channels_;
  std::optional<nn::Dense> linear_;
  std::vector<Block> blocks_;
  std::optional<nn::BatchNorm> norm_;
  std::optional<nn::Conv2d> conv_;
};

// The variables of a layer with spectral norm: its weight and its bias.
struct NormalisedLayer {
  nn::SpectralNorm weight;
  VariableId bias;
};

// Maps images and classes to logits of being real.
class Discriminator {
 public:
  // Blocks are divided among the logical devices.
  Discriminator(Graph& graph, const SnganConfig& config,
                DType dtype = DType::kF32, int num_devices = 1,
                CallSite site = CallSite::Here());

  // images [B, H, W, 3] floating in [-1, 1], labels [B] i32 -> logits [B].
  // Every weight does one power iteration, and the updates of its vectors are
  // appended to `updates`. Null `updates`: the vectors stay as they are.
  Output operator()(Output images, Output labels, std::vector<Output>* updates,
                    CallSite site = CallSite::Here()) const;

 private:
  struct Block {
    NormalisedLayer conv1, conv2;
    std::optional<NormalisedLayer> shortcut;
    // The first block has no relu in front.
    bool is_first, halves;
  };

  int num_devices_;
  std::vector<Block> blocks_;
  std::optional<NormalisedLayer> linear_;
  std::optional<nn::SpectralNorm> embedding_;
};

}  // namespace replicant::models::sngan
