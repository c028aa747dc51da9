#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agents/d4pg/config.h"
#include "agents/learning_spec.h"
#include "engine/graph/graph.h"
#include "engine/nn/layers.h"

// The networks of a D4PG agent. Their variables have the names of PyTorch
// modules (with '/' for '.'):
//
//   encoder/convnet/0, 2, 4 ...  convolutions, relu between them
//   encoder/IMAGE/convnet/0 ...  of several images without shared weights: the
//                                convolutions of each, by its name
//   encoder/trunk/0, 1           Linear, LayerNorm (then
//                                embedding_activation); only of a shared
//                                embedding
//   policy/trunk/0, 1            the same; only of pixels without it
//   policy/head/0, 1, 3, 5 ...   Linear, LayerNorm (then tanh), Linear (then
//                                the activation) ..., Linear
//   critic/trunk, critic/head    the same
//
// A state in addition to pixels joins the embedding: at the input of a shared
// one, otherwise at the input of each head, next to its embedding of the
// pixels.
//
// Letters: B batch, H W C image, S state in addition to it, F features, A
// actions, K atoms.
//
// Constructors throw InvalidArgument for a name that is taken in the graph.
namespace replicant::agents::d4pg {

using graph::CallSite;
using graph::Graph;
using graph::Output;
using graph::VariableId;

// Throws ConfigError, with the reason, if networks of `config` cannot be built
// for `spec`: there is no action, the observation has the wrong rank for the
// encoder, an image is too small for its convolutions, images that share
// weights differ in their channels, or there is a state beside an observation
// without pixels.
void CheckSpec(const NetworkConfig& config, const LearningSpec& spec);

// Initial values of a layer. `gain` is sqrt 2 if a relu follows, otherwise 1.
nn::LayerOptions LayerOptionsOf(const NetworkConfig& config, double gain,
                                DType dtype);

// x -> activation(LayerNorm(Linear(x))): [B, in] -> [B, size]. Layers "0" and
// "1" under the scope that is open at construction. The networks below call it
// and Head under their own Graph::SiteScope.
class Embedding {
 public:
  Embedding(Graph& graph, const NetworkConfig& config, int64_t in, int64_t size,
            EmbeddingActivation activation, DType dtype);

  Output operator()(Output x) const;
  void AppendVariables(std::vector<VariableId>* variables) const;

 private:
  EmbeddingActivation activation_;
  nn::Dense linear_;
  nn::LayerNorm norm_;
};

// The inputs of the heads.
struct Features {
  Output encoded;  // [B, F]
  // [B, S]; invalid without a separate state, and with a shared embedding
  Output state;
};

// Maps pixels [B, H, W, C] u8, scaled to [-0.5, 0.5], to features [B, F], where
// F = H' W' C' of the last convolution, in that order. The features of several
// images lie one after the other. kState passes observations unchanged. With a
// shared embedding at the end, F is its size.
class Encoder {
 public:
  Encoder(Graph& graph, const NetworkConfig& config, const LearningSpec& spec,
          CallSite site = CallSite::Here());

  // `state` [B, S] is invalid without a state in addition to pixels. Several
  // images are [B, P], see agents/images.h, or one tensor each.
  Features operator()(Output observation, Output state = {},
                      CallSite site = CallSite::Here()) const;
  Features operator()(const std::vector<Output>& images, Output state = {},
                      CallSite site = CallSite::Here()) const;
  int64_t feature_size() const { return feature_size_; }
  // Empty for kState without a shared embedding.
  std::vector<VariableId> variables() const;

 private:
  using Convnet = std::vector<nn::Conv2d>;

  // Adds the convolutions of all images; returns the size of their features.
  int64_t AddConvnets(Graph& graph, const NetworkConfig& config,
                      const LearningSpec& spec);
  // [B, H, W, C] u8 -> [B, F]
  Output Encode(const Convnet& convnet, Output image) const;

  DType dtype_;
  TaskSpec task_;
  // one for each image, or one for all; none for kState
  std::vector<Convnet> convnets_;
  std::optional<Embedding> embedding_;
  int64_t feature_size_ = 0;
};

// Embedding -> (Linear -> activation)* -> Linear: [B, in] -> [B, out].
class Head {
 public:
  struct Options {
    std::vector<int64_t> hidden_sizes;
    int64_t in = 0;
    int64_t out = 0;
    nn::LayerOptions last_layer;
  };
  Head(Graph& graph, const NetworkConfig& config, const Options& options);

  // Appends the outputs of the activations, [B, N] each, to `hidden` unless it
  // is null.
  Output operator()(Output x, std::vector<Output>* hidden = nullptr) const;
  void AppendVariables(std::vector<VariableId>* variables) const;

 private:
  Activation activation_;
  Embedding first_;
  // all linear layers after the embedding
  std::vector<nn::Dense> layers_;
};

// Maps features to actions.
class PolicyNetwork {
 public:
  PolicyNetwork(Graph& graph, const NetworkConfig& config,
                const LearningSpec& spec, int64_t feature_size,
                CallSite site = CallSite::Here());

  struct Result {
    Output action;    // tanh(pre_tanh), [B, A]
    Output pre_tanh;  // [B, A]
    // of the head's activations, [B, N] each
    std::vector<Output> hidden;
  };
  Result operator()(const Features& features,
                    CallSite site = CallSite::Here()) const;
  const std::vector<VariableId>& variables() const { return variables_; }

 private:
  std::optional<Embedding> trunk_;
  std::optional<Head> head_;
  std::vector<VariableId> variables_;
};

// What a critic reads.
struct CriticInput {
  int64_t feature_size = 0;
  // false: the features are those of observation and action together
  bool has_action = true;
};

// Maps features and actions to the logits of the return's distribution.
class CriticNetwork {
 public:
  CriticNetwork(Graph& graph, const NetworkConfig& config,
                const LearningSpec& spec, const CriticInput& input,
                int64_t num_atoms, CallSite site = CallSite::Here());

  struct Result {
    Output logits;  // [B, K]
    // of the head's activations, [B, N] each
    std::vector<Output> hidden;
  };
  // action [B, A]; invalid if the critic reads none
  Result operator()(const Features& features, Output action,
                    CallSite site = CallSite::Here()) const;
  // Sets the logical device that computes it; initially 0.
  void PlaceOn(int device) { device_ = device; }
  const std::vector<VariableId>& variables() const { return variables_; }

 private:
  int device_ = 0;
  std::optional<Embedding> trunk_;
  std::optional<Head> head_;
  std::vector<VariableId> variables_;
};

}  // namespace replicant::agents::d4pg
