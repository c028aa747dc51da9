#include "agents/d4pg/config.h"

#include <fmt/format.h>

namespace replicant::agents::d4pg {
namespace {

constexpr int64_t kMaxSize = 1 << 16;

}  // namespace

EncoderConfig EncoderConfig::Read(config::Reader& reader) {
  EncoderConfig c;
  reader.Field("kind", &c.kind,
               {{"state", EncoderKind::kState},
                {"nature", EncoderKind::kNature},
                {"drq", EncoderKind::kDrq},
                {"light", EncoderKind::kLight},
                {"custom", EncoderKind::kCustom}},
               "encoder of observations. state: none, for a vector; nature, "
               "drq, light: convolutions over pixels (usually 64x64, 84x84, "
               "64x64); custom: the convolutions of the other keys");
  reader.Field("channels", &c.channels, {1, kMaxSize}, {0, 16},
               "output channels of each convolution, for custom");
  reader.Field("kernels", &c.kernels, {1, 64}, {0, 16},
               "kernel size of each convolution, for custom");
  reader.Field("strides", &c.strides, {1, 64}, {0, 16},
               "stride of each convolution, for custom");
  reader.Field("shared_weights", &c.has_shared_weights,
               "whether all images of an observation go through the same "
               "convolutions; otherwise each image has its own");
  const bool is_custom = c.kind == EncoderKind::kCustom;
  if (is_custom && c.channels.empty()) {
    reader.Error("channels", "kind custom needs at least one convolution");
  }
  if (!is_custom &&
      !(c.channels.empty() && c.kernels.empty() && c.strides.empty())) {
    reader.Error("kind",
                 "channels, kernels and strides are only for kind custom");
  }
  if (c.channels.size() != c.kernels.size() ||
      c.channels.size() != c.strides.size()) {
    reader.Error(
        "channels",
        fmt::format("want as many channels as kernels and strides, "
                    "got {}, {} and {}",
                    c.channels.size(), c.kernels.size(), c.strides.size()));
  }
  return c;
}

std::vector<ConvLayer> EncoderConfig::Layers() const {
  switch (kind) {
    case EncoderKind::kState:
      return {};
    case EncoderKind::kNature:
      return {{32, 8, 4}, {64, 4, 2}, {64, 3, 1}};
    case EncoderKind::kDrq:
      return {{32, 3, 2}, {32, 3, 1}, {32, 3, 1}, {32, 3, 1}};
    case EncoderKind::kLight:
      return {{16, 8, 4}, {32, 4, 2}};
    case EncoderKind::kCustom:
      break;
  }
  std::vector<ConvLayer> layers;
  for (size_t i = 0; i < channels.size(); ++i) {
    layers.push_back({channels[i], kernels[i], strides[i]});
  }
  return layers;
}

NetworkConfig NetworkConfig::Read(config::Reader& reader) {
  NetworkConfig c;
  reader.Section("encoder", &c.encoder,
                 "encoder from observations to features");
  reader.Field("embedding_size", &c.embedding_size, {1, kMaxSize},
               "output size of the embedding layer (linear, layer norm, "
               "activation) between encoder and heads; for pixels only, unless "
               "it is shared");
  reader.Field("embedding_activation", &c.embedding_activation,
               {{"tanh", EmbeddingActivation::kTanh},
                {"elu", EmbeddingActivation::kElu}},
               "activation at the end of the embedding");
  reader.Field("shared_embedding", &c.has_shared_embedding,
               "whether policy and critic share one embedding, at the end of "
               "the encoder; otherwise they have one each");
  reader.Field("policy_hidden_sizes", &c.policy_hidden_sizes, {1, kMaxSize},
               {1, 16},
               "sizes of the policy's hidden layers; the first has layer "
               "norm");
  reader.Field("critic_hidden_sizes", &c.critic_hidden_sizes, {1, kMaxSize},
               {1, 16},
               "sizes of the critic's hidden layers; the first has layer "
               "norm");
  reader.Field("activation", &c.activation,
               {{"elu", Activation::kElu}, {"relu", Activation::kRelu}},
               "activation after every hidden layer but the first, which has "
               "tanh");
  reader.Field("initialization", &c.initialization,
               {{"orthogonal", Initialization::kOrthogonal},
                {"pytorch", Initialization::kPyTorch}},
               "initial weights and biases. orthogonal: orthogonal weights, "
               "zero biases; pytorch: both uniform, as PyTorch's default");
  reader.Field("policy_last_layer_scale", &c.policy_last_layer_scale,
               {1e-6, 1.0},
               "factor of the initial values of the policy's last layer");
  reader.Field("critic_last_layer_scale", &c.critic_last_layer_scale,
               {1e-6, 1.0},
               "factor of the initial values of the critic's last layer");
  reader.Field(
      "critic_bias_slope", &c.critic_bias_slope, {0.0, 10.0},
      "atom k of the critic's last layer starts with its bias lowered by slope "
      "* k, so that values start near v_min; 0: values start in the middle");
  return c;
}

DistributionConfig DistributionConfig::Read(config::Reader& reader) {
  DistributionConfig c;
  reader.Field("num_atoms", &c.num_atoms, {2, 1001},
               "number of atoms: values that a return can take");
  reader.Field("range", &c.range,
               {{"fixed", Range::kFixed}, {"running", Range::kRunning}},
               "range of the atoms. fixed: v_min to v_max; running: found from "
               "the rewards so far, for rewards of any size");
  reader.Field("range_deviations", &c.range_deviations, {0.1, 1000.0},
               "running: length of the range on each side of 0, in root mean "
               "squares of the returns that rewards would give if they lasted");
  reader.Field("range_updates", &c.range_updates, {1, 1'000'000'000},
               "running: updates that these squares are averaged over, at "
               "most");
  reader.Field("v_min", &c.v_min, {-1e6, 1e6},
               "lowest atom; null: 0, because rewards are in [0, 1]");
  reader.Field("v_max", &c.v_max, {-1e6, 1e6},
               "highest atom; null: largest reward of an agent step / (1 - "
               "discount)");
  if (c.range == Range::kRunning && (c.v_min || c.v_max)) {
    reader.Error("range",
                 fmt::format("running finds v_min and v_max itself, but {} is "
                             "given; want null",
                             c.v_min ? fmt::format("v_min {}", *c.v_min)
                                     : fmt::format("v_max {}", *c.v_max)));
  }
  return c;
}

TargetConfig TargetConfig::Read(config::Reader& reader) {
  TargetConfig c;
  reader.Field("update", &c.update,
               {{"moving_average", TargetUpdate::kMovingAverage},
                {"periodic_copy", TargetUpdate::kPeriodicCopy}},
               "update rule of the target networks");
  reader.Field("rate", &c.rate, {1e-6, 1.0},
               "share of the online network in each update, for "
               "moving_average");
  reader.Field("period", &c.period, {1, 1'000'000'000},
               "updates from one copy to the next, for periodic_copy");
  reader.Field("has_encoder", &c.has_encoder,
               "whether next observations go through a target encoder; "
               "otherwise through the online encoder. For pixels, or a shared "
               "embedding");
  return c;
}

RepresentationConfig RepresentationConfig::Read(config::Reader& reader) {
  RepresentationConfig c;
  reader.Field(
      "horizon", &c.horizon, {0, 100},
      "number of steps that a model predicts from an observation's embedding "
      "and the following actions; must equal the table's window. 0: no model");
  reader.Field(
      "targets", &c.targets, {0, 100},
      "number of those steps whose next embedding a row's loss has; fewer take "
      "less time. They are the one where the return bootstraps, and others "
      "drawn at random, which count for all. 0: all");
  if (c.targets > c.horizon) {
    reader.Error("targets",
                 fmt::format("{} next embeddings of {} steps; want at most "
                             "horizon {}",
                             c.targets, c.horizon, c.horizon));
  }
  if (c.targets == 1 && c.horizon > 1) {
    reader.Error("targets",
                 fmt::format("1 next embedding of {} steps: no other counts "
                             "for the rest; want 0 or at least 2",
                             c.horizon));
  }
  reader.Field("action_embedding_size", &c.action_embedding_size, {1, kMaxSize},
               "size of the embedding of an action");
  reader.Field("hidden_sizes", &c.hidden_sizes, {1, kMaxSize}, {1, 16},
               "sizes of the hidden layers between the embeddings of "
               "observation and action and their joint embedding; each has "
               "layer norm and elu");
  reader.Field("state_action_size", &c.state_action_size, {1, kMaxSize},
               "size of the joint embedding of observation and action, which "
               "the critic reads");
  reader.Field("latent_weight", &c.latent_weight, {0.0, 1e6},
               "weight of the squared error of the next embedding");
  reader.Field("reward_weight", &c.reward_weight, {0.0, 1e6},
               "weight of the cross-entropy of the reward");
  reader.Field("end_weight", &c.end_weight, {0.0, 1e6},
               "weight of the squared error of the end, which is 1 where an "
               "episode terminates");
  reader.Field("contrast_weight", &c.contrast_weight, {0.0, 1e6},
               "weight of InfoNCE, by which a predicted embedding tells its "
               "next observation from those of the batch's other rows; 0: "
               "none");
  reader.Field("contrast_temperature", &c.contrast_temperature, {1e-3, 1e3},
               "temperature of InfoNCE");
  return c;
}

OptimizerConfig OptimizerConfig::Read(config::Reader& reader) {
  OptimizerConfig c;
  reader.Field("learning_rate", &c.learning_rate, {0.0, 1.0},
               "initial learning rate of Adam");
  reader.Field("schedule", &c.schedule,
               {{"constant", Schedule::kConstant},
                {"linear", Schedule::kLinear},
                {"cosine", Schedule::kCosine}},
               "schedule of the learning rate: linear falls to "
               "final_learning_rate, cosine to 0");
  reader.Field("schedule_steps", &c.schedule_steps, {1, 1'000'000'000},
               "length of the schedule in updates");
  reader.Field("final_learning_rate", &c.final_learning_rate, {0.0, 1.0},
               "learning rate at the end of the schedule, for linear");
  reader.Field("max_gradient_norm", &c.max_gradient_norm, {0.0, 1e6},
               "maximum global norm of the gradients; 0: no clipping");
  reader.Field("weight_decay", &c.weight_decay, {0.0, 1.0},
               "share of the parameters that each update takes away, times "
               "the learning rate (AdamW)");
  return c;
}

BehaviourCloningConfig BehaviourCloningConfig::Read(config::Reader& reader) {
  BehaviourCloningConfig c;
  reader.Field("weight", &c.weight, {0.0, 1e6},
               "weight of the mean squared difference between the policy's "
               "actions and those of prior data, each in [-1, 1], in the "
               "policy's loss; 0: none. Needs replay.prior.folder");
  reader.Field("final_weight", &c.final_weight, {0.0, 1e6},
               "weight at the end of its schedule, which is linear");
  reader.Field("decay_start", &c.decay_start, {0, 1'000'000'000},
               "updates before the schedule begins, offline ones included");
  reader.Field("decay_updates", &c.decay_updates, {0, 1'000'000'000},
               "length of the schedule in updates; 0: weight throughout");
  reader.Field("q_filter", &c.has_q_filter,
               "whether only actions count that the critic values more than "
               "the policy's");
  return c;
}

D4pgConfig D4pgConfig::Read(config::Reader& reader) {
  D4pgConfig c;
  reader.Section("observations", &c.observations,
                 "how observations reach the networks");
  reader.Section("networks", &c.networks,
                 "sizes and initial values of the networks");
  reader.Section("distribution", &c.distribution,
                 "the critic's distribution over returns");
  reader.Section("target", &c.target, "the target networks");
  reader.Section("representation", &c.representation,
                 "a model of the next steps, which alone trains the encoder; "
                 "policy and critic read its embeddings. Needs "
                 "networks.shared_embedding and a table with windows");
  reader.Section("encoder_optimizer", &c.encoder_optimizer,
                 "optimizer of encoder and model, with a representation");
  reader.Section("policy_optimizer", &c.policy_optimizer,
                 "optimizer of the policy");
  reader.Section(
      "critic_optimizer", &c.critic_optimizer,
      "optimizer of the critic and, without a representation, of the "
      "encoder");
  reader.Field("max_action_gradient_norm", &c.max_action_gradient_norm,
               {0.0, 1e6},
               "maximum norm of the value's gradient with respect to the "
               "action, per row of a batch; 0: no clipping");
  reader.Field("pre_tanh_penalty_weight", &c.pre_tanh_penalty_weight,
               {0.0, 1e3},
               "weight of the penalty on the policy's outputs before tanh, "
               "which keeps them out of saturation");
  reader.Field("pre_tanh_penalty_limit", &c.pre_tanh_penalty_limit,
               {0.0, 100.0},
               "absolute output before tanh above which the penalty starts");
  reader.Section("behaviour_cloning", &c.behaviour_cloning,
                 "imitation of the actions in prior data, as a part of the "
                 "policy's loss");
  reader.Field("random_shift", &c.random_shift, {0, 64},
               "maximum random shift of the frames of an update, in pixels; "
               "0: no shift. Pixels only");
  reader.Field("average_decay", &c.average_decay, {0.0, 0.999999},
               "decay of a moving average of encoder and policy, which is "
               "evaluated and exported in their place; 0: no average");
  reader.Field("average_explores", &c.has_average_explorers,
               "whether actors explore with that average, too, in place of "
               "the current networks");
  if (c.has_average_explorers && c.average_decay == 0.0) {
    reader.Error("average_explores",
                 "true, but average_decay 0 keeps no average; want false");
  }
  reader.Field("priority", &c.priority,
               {{"cross_entropy", Priority::kCrossEntropy},
                {"absolute_td_error", Priority::kAbsoluteTdError},
                {"lap", Priority::kLap}},
               "new priority of sampled items. cross_entropy: the critic's "
               "loss; absolute_td_error: the absolute difference of expected "
               "values; lap: the larger of that and 1, for samples without "
               "importance weights");
  if (reader.Has("prediction")) {
    reader.Error("prediction",
                 "gone; agent.representation takes its place, with "
                 "other networks and losses; configs/base/representation.yaml "
                 "has its settings");
  }
  if (c.representation.horizon > 0 && !c.networks.has_shared_embedding) {
    reader.Error("representation",
                 fmt::format("horizon {} predicts the embedding that policy "
                             "and critic share; want networks."
                             "shared_embedding: true, got false",
                             c.representation.horizon));
  }
  if (c.representation.horizon > 0 && !c.target.has_encoder) {
    reader.Error("representation",
                 fmt::format("horizon {} predicts embeddings of the target "
                             "encoder; want target.has_encoder: true, got "
                             "false",
                             c.representation.horizon));
  }
  if (c.random_shift > 0 && !c.networks.encoder.has_pixels()) {
    reader.Error("random_shift",
                 "wants pixels, but networks.encoder.kind is state");
  }
  return c;
}

}  // namespace replicant::agents::d4pg
