#pragma once

#include <optional>
#include <vector>

#include "core/graph/graph.h"
#include "core/nn/layers.h"
#include "core/nn/spectral_norm.h"
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
// Letters: B batch, H W C image, Z latent numbers.
namespace replicant::models::sngan {

using graph::CallSite;
using graph::Graph;
using graph::Output;
using graph::VariableId;

// Latent numbers and classes to images.
class Generator {
 public:
  // `dtype` is that of parameters and computation; with `gather` batch norms
  // are over all replicas.
  Generator(Graph& graph, const SnganConfig& config, DType dtype = DType::kF32,
            const nn::GatherFn& gather = {}, CallSite site = CallSite::Here());

  // latent [B, Z], labels [B] i32 -> images [B, H, W, 3] in (-1, 1). With
  // `updates`, to which the updates of the running statistics are added, the
  // norms use those of the batch; without (null), the running ones.
  Output operator()(Output latent, Output labels, std::vector<Output>* updates,
                    CallSite site = CallSite::Here()) const;

 private:
  // Doubles the image.
  struct Block {
    nn::ConditionalBatchNorm norm1, norm2;
    nn::Conv2d conv1, conv2, shortcut;
  };

  int64_t first_channels_;
  std::optional<nn::Dense> linear_;
  std::vector<Block> blocks_;
  std::optional<nn::BatchNorm> norm_;
  std::optional<nn::Conv2d> conv_;
};

// A layer whose weight is divided by its spectral norm, and its bias.
struct NormalisedLayer {
  nn::SpectralNorm weight;
  VariableId bias;
};

// Images and classes to how real they look.
class Discriminator {
 public:
  Discriminator(Graph& graph, const SnganConfig& config,
                DType dtype = DType::kF32, CallSite site = CallSite::Here());

  // images [B, H, W, 3] floating in [-1, 1], labels [B] i32 -> [B]. With
  // `updates`, to which those of the vectors are added, every weight makes one
  // power iteration; without (null) the vectors are taken as they are.
  Output operator()(Output images, Output labels, std::vector<Output>* updates,
                    CallSite site = CallSite::Here()) const;

 private:
  struct Block {
    NormalisedLayer conv1, conv2;
    std::optional<NormalisedLayer> shortcut;
    // The first has no relu in front.
    bool is_first, halves;
  };

  std::vector<Block> blocks_;
  std::optional<NormalisedLayer> linear_;
  std::optional<nn::SpectralNorm> embedding_;
};

}  // namespace replicant::models::sngan
