#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agents/observation_normalizer.h"
#include "base/config/reader.h"

// Configuration of a D4PG agent (arXiv:1804.08617): section `agent` of a run,
// one struct per subsection. config.cc has the keys, their ranges and their
// meaning.
namespace replicant::agents::d4pg {

enum class EncoderKind { kState, kNature, kDrq, kLight, kCustom };
enum class Activation { kElu, kRelu };
enum class EmbeddingActivation { kTanh, kElu };
enum class Initialization { kOrthogonal, kPyTorch };
enum class TargetUpdate { kMovingAverage, kPeriodicCopy };
enum class Schedule { kConstant, kLinear, kCosine };
enum class Priority { kCrossEntropy, kAbsoluteTdError, kLap };

// One convolution with a square kernel, no padding, followed by relu.
struct ConvLayer {
  int64_t channels = 0;
  int64_t kernel = 0;
  int64_t stride = 0;
};

// The encoder from observations to features.
struct EncoderConfig {
  EncoderKind kind = EncoderKind::kState;
  // kCustom only; the three have one length
  std::vector<int64_t> channels;
  std::vector<int64_t> kernels;
  std::vector<int64_t> strides;
  // one set of convolutions for all images of an observation; false: one each
  bool has_shared_weights = false;

  static EncoderConfig Read(config::Reader& reader);

  bool has_pixels() const { return kind != EncoderKind::kState; }
  // Returns the convolutions, first to last; none for kState.
  //   kNature  8x8/4 32, 4x4/2 64, 3x3/1 64 (Mnih et al. 2015, "Methods")
  //   kDrq     3x3/2 32, three of 3x3/1 32 (arXiv:2107.09645, section 3.1)
  //   kLight   8x8/4 16, 4x4/2 32
  std::vector<ConvLayer> Layers() const;
};

struct NetworkConfig {
  EncoderConfig encoder;
  // output size of the embedding (linear, layer norm, activation) between
  // encoder and heads; pixels only, unless it is shared
  int64_t embedding_size = 50;
  EmbeddingActivation embedding_activation = EmbeddingActivation::kTanh;
  // true: one embedding at the end of the encoder; false: one in each head
  bool has_shared_embedding = false;
  std::vector<int64_t> policy_hidden_sizes = {256, 256, 256};
  std::vector<int64_t> critic_hidden_sizes = {512, 512, 256};
  Activation activation = Activation::kElu;
  Initialization initialization = Initialization::kOrthogonal;
  double policy_last_layer_scale = 0.01;
  double critic_last_layer_scale = 0.1;
  // atom k starts with an additional bias of -slope * k, so that values start
  // low
  double critic_bias_slope = 0.0;

  static NetworkConfig Read(config::Reader& reader);
};

enum class Range { kFixed, kRunning };

struct DistributionConfig {
  int64_t num_atoms = 51;
  Range range = Range::kFixed;
  // kRunning (agents/d4pg/return_range.h)
  double range_deviations = 3.0;
  int64_t range_updates = 10'000;
  // none: MakeSupport() computes the range of returns
  std::optional<double> v_min;
  std::optional<double> v_max;

  static DistributionConfig Read(config::Reader& reader);
};

struct TargetConfig {
  TargetUpdate update = TargetUpdate::kMovingAverage;
  double rate = 0.005;   // kMovingAverage
  int64_t period = 100;  // kPeriodicCopy; updates
  // false: next observations go through the online encoder
  bool has_encoder = true;

  static TargetConfig Read(config::Reader& reader);
};

struct OptimizerConfig {
  double learning_rate = 1e-4;
  Schedule schedule = Schedule::kConstant;
  int64_t schedule_steps = 1'000'000;  // kLinear, kCosine; updates
  double final_learning_rate = 0.0;    // kLinear
  double max_gradient_norm = 40.0;     // global norm; 0: no limit
  double weight_decay = 0.0;           // decoupled (arXiv:1711.05101)

  static OptimizerConfig Read(config::Reader& reader);
};

// A representation that predicts (agents/d4pg/representation.h). Defaults of
// sizes and weights: arXiv:2501.16142, table of hyperparameters.
struct RepresentationConfig {
  int64_t horizon = 0;  // H, steps; 0: no representation
  int64_t targets = 0;  // T, next embeddings of a row; 0: H
  int64_t action_embedding_size = 256;
  std::vector<int64_t> hidden_sizes = {512, 512};
  int64_t state_action_size = 512;  // Y
  double latent_weight = 1.0;
  double reward_weight = 0.1;
  double end_weight = 0.1;
  double contrast_weight = 0.0;  // 0: none
  double contrast_temperature = 0.1;

  static RepresentationConfig Read(config::Reader& reader);

  // T
  int64_t num_targets() const { return targets > 0 ? targets : horizon; }
};

// weight[t] * behaviour cloning in the policy's loss (agents/d4pg/losses.h), t
// the updates so far: weight until decay_start, then linear to final_weight
// within decay_updates.
struct BehaviourCloningConfig {
  double weight = 0.0;
  double final_weight = 0.0;
  int64_t decay_start = 0;    // updates
  int64_t decay_updates = 0;  // 0: constant
  bool has_q_filter = false;

  static BehaviourCloningConfig Read(config::Reader& reader);

  bool is_on() const {
    return weight > 0.0 || (decay_updates > 0 && final_weight > 0.0);
  }
};

struct D4pgConfig {
  ObservationsConfig observations;
  NetworkConfig networks;
  DistributionConfig distribution;
  TargetConfig target;
  RepresentationConfig representation;
  OptimizerConfig encoder_optimizer;  // with a representation
  OptimizerConfig policy_optimizer;
  OptimizerConfig critic_optimizer;
  // norm of dq/da per row of a batch; 0: no limit
  double max_action_gradient_norm = 1.0;
  // weight * mean(max(|u| - limit, 0)^2), u the policy's value before tanh
  double pre_tanh_penalty_weight = 0.0;
  double pre_tanh_penalty_limit = 2.0;
  BehaviourCloningConfig behaviour_cloning;
  int64_t random_shift = 0;  // pixels; 0: none
  // moving average of encoder and policy (nn::AverageVariables), which acts
  // without noise; 0: none
  double average_decay = 0.0;
  bool has_average_explorers = false;  // it acts with noise, too
  Priority priority = Priority::kCrossEntropy;

  static D4pgConfig Read(config::Reader& reader);
};

}  // namespace replicant::agents::d4pg
