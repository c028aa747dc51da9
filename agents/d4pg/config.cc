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
               "state: none, the observation is a vector; nature, drq, light: "
               "convolutions over pixels (of 64x64, 84x84, 64x64 usually); "
               "custom: those given by the other keys");
  reader.Field("channels", &c.channels, {1, kMaxSize}, {0, 16},
               "output channels of each convolution (custom)");
  reader.Field("kernels", &c.kernels, {1, 64}, {0, 16},
               "kernel size of each convolution (custom)");
  reader.Field("strides", &c.strides, {1, 64}, {0, 16},
               "stride of each convolution (custom)");
  const bool is_custom = c.kind == EncoderKind::kCustom;
  if (is_custom && c.channels.empty()) {
    reader.Error("channels", "custom wants at least one convolution");
  }
  if (!is_custom &&
      !(c.channels.empty() && c.kernels.empty() && c.strides.empty())) {
    reader.Error("kind",
                 "channels, kernels and strides are given, which only custom "
                 "has");
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
  reader.Section("encoder", &c.encoder, "from observations to features");
  reader.Field("embedding_size", &c.embedding_size, {1, kMaxSize},
               "size of the embedding (linear, layer norm, tanh) of the "
               "features, one for the policy and one for the critic (pixels)");
  reader.Field("policy_hidden_sizes", &c.policy_hidden_sizes, {1, kMaxSize},
               {1, 16},
               "hidden layers of the policy; the first has layer norm");
  reader.Field("critic_hidden_sizes", &c.critic_hidden_sizes, {1, kMaxSize},
               {1, 16},
               "hidden layers of the critic; the first has layer norm");
  reader.Field("activation", &c.activation,
               {{"elu", Activation::kElu}, {"relu", Activation::kRelu}},
               "after every hidden layer but the first, which has tanh");
  reader.Field("initialization", &c.initialization,
               {{"orthogonal", Initialization::kOrthogonal},
                {"pytorch", Initialization::kPyTorch}},
               "orthogonal: weights orthogonal, biases 0; pytorch: both uniform"
               " as PyTorch's");
  reader.Field("policy_last_layer_scale", &c.policy_last_layer_scale,
               {1e-6, 1.0}, "factor of the first values of its last layer");
  reader.Field("critic_last_layer_scale", &c.critic_last_layer_scale,
               {1e-6, 1.0}, "factor of the first values of its last layer");
  reader.Field("critic_bias_slope", &c.critic_bias_slope, {0.0, 10.0},
               "the last bias of atom k starts lower by this times k, so that "
               "values start near v_min; 0 starts them in the middle");
  return c;
}

DistributionConfig DistributionConfig::Read(config::Reader& reader) {
  DistributionConfig c;
  reader.Field("num_atoms", &c.num_atoms, {2, 1001},
               "values that a return can have");
  reader.Field("v_min", &c.v_min, {-1e6, 1e6},
               "smallest return; null: 0, since rewards are in [0, 1]");
  reader.Field("v_max", &c.v_max, {-1e6, 1e6},
               "largest return; null: the largest reward of an agent step / "
               "(1 - discount)");
  return c;
}

TargetConfig TargetConfig::Read(config::Reader& reader) {
  TargetConfig c;
  reader.Field("update", &c.update,
               {{"moving_average", TargetUpdate::kMovingAverage},
                {"periodic_copy", TargetUpdate::kPeriodicCopy}},
               "how target networks follow");
  reader.Field("rate", &c.rate, {1e-6, 1.0},
               "part of the way per update (moving_average)");
  reader.Field("period", &c.period, {1, 1'000'000'000},
               "updates from copy to copy (periodic_copy)");
  reader.Field("has_encoder", &c.has_encoder,
               "whether next observations go through a target encoder; else "
               "through the online one (pixels)");
  return c;
}

OptimizerConfig OptimizerConfig::Read(config::Reader& reader) {
  OptimizerConfig c;
  reader.Field("learning_rate", &c.learning_rate, {0.0, 1.0}, "of Adam");
  reader.Field("schedule", &c.schedule,
               {{"constant", Schedule::kConstant},
                {"linear", Schedule::kLinear},
                {"cosine", Schedule::kCosine}},
               "how the learning rate changes: linear to "
               "final_learning_rate, cosine to 0");
  reader.Field("schedule_steps", &c.schedule_steps, {1, 1'000'000'000},
               "updates until the end of the schedule");
  reader.Field("final_learning_rate", &c.final_learning_rate, {0.0, 1.0},
               "at the end of the schedule (linear)");
  reader.Field("max_gradient_norm", &c.max_gradient_norm, {0.0, 1e6},
               "global norm that gradients are clipped to; 0: none");
  return c;
}

D4pgConfig D4pgConfig::Read(config::Reader& reader) {
  D4pgConfig c;
  reader.Section("networks", &c.networks, "the networks");
  reader.Section("distribution", &c.distribution,
                 "the critic's distribution over returns");
  reader.Section("target", &c.target, "the target networks");
  reader.Section("policy_optimizer", &c.policy_optimizer,
                 "training of the policy");
  reader.Section("critic_optimizer", &c.critic_optimizer,
                 "training of critic and encoder");
  reader.Field("max_action_gradient_norm", &c.max_action_gradient_norm,
               {0.0, 1e6},
               "norm that the value's gradient by the action is clipped to, "
               "per element of a batch; 0: none");
  reader.Field("pre_tanh_penalty_weight", &c.pre_tanh_penalty_weight,
               {0.0, 1e3},
               "weight of a penalty on the policy's values before tanh, which "
               "keeps it out of saturation");
  reader.Field("pre_tanh_penalty_limit", &c.pre_tanh_penalty_limit,
               {0.0, 100.0}, "absolute value up to which there is none");
  reader.Field("random_shift", &c.random_shift, {0, 64},
               "pixels by which the frames of an update are moved at most; 0: "
               "none (pixels)");
  reader.Field("priority", &c.priority,
               {{"cross_entropy", Priority::kCrossEntropy},
                {"absolute_td_error", Priority::kAbsoluteTdError}},
               "new priority of what was sampled: the critic's loss, or the "
               "difference of expected values");
  if (c.random_shift > 0 && !c.networks.encoder.has_pixels()) {
    reader.Error("random_shift",
                 "wants pixels, but networks.encoder.kind is state");
  }
  return c;
}

}  // namespace replicant::agents::d4pg
