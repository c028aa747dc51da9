#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "agents/d4pg/networks.h"
#include "agents/images.h"
#include "base/rng.h"
#include "tests/agents/learning_specs.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::agents::d4pg {
namespace {

using testing::GraphRunner;
using testing::LearningSpecOf;
using testing::MessageOf;

NetworkConfig Small(EncoderKind kind) {
  return {.encoder = {.kind = kind},
          .embedding_size = 5,
          .policy_hidden_sizes = {7, 6},
          .critic_hidden_sizes = {8, 7}};
}

std::vector<std::string> NamesAndShapes(const Graph& graph) {
  std::vector<std::string> all;
  for (const auto& spec : graph.variables()) {
    all.push_back(spec.name + " " + spec.shape.ToString());
  }
  return all;
}

TEST(NetworksTest, VariablesAreCalledAndShapedAsPyTorchModules) {
  Graph graph;
  const LearningSpec spec = LearningSpecOf(Shape({64, 64, 9}), 2);
  const NetworkConfig config = Small(EncoderKind::kLight);
  const Encoder encoder(graph, config, spec);
  const PolicyNetwork policy(graph, config, spec, encoder.feature_size());
  const CriticNetwork critic(graph, config, spec,
                             {.feature_size = encoder.feature_size()}, 11);
  EXPECT_EQ(NamesAndShapes(graph),
            (std::vector<std::string>{"encoder/convnet/0/weight [16,9,8,8]",
                                      "encoder/convnet/0/bias [16]",
                                      "encoder/convnet/2/weight [32,16,4,4]",
                                      "encoder/convnet/2/bias [32]",
                                      "policy/trunk/0/weight [5,1152]",
                                      "policy/trunk/0/bias [5]",
                                      "policy/trunk/1/weight [5]",
                                      "policy/trunk/1/bias [5]",
                                      "policy/head/0/weight [7,5]",
                                      "policy/head/0/bias [7]",
                                      "policy/head/1/weight [7]",
                                      "policy/head/1/bias [7]",
                                      "policy/head/3/weight [6,7]",
                                      "policy/head/3/bias [6]",
                                      "policy/head/5/weight [2,6]",
                                      "policy/head/5/bias [2]",
                                      "critic/trunk/0/weight [5,1152]",
                                      "critic/trunk/0/bias [5]",
                                      "critic/trunk/1/weight [5]",
                                      "critic/trunk/1/bias [5]",
                                      "critic/head/0/weight [8,7]",
                                      "critic/head/0/bias [8]",
                                      "critic/head/1/weight [8]",
                                      "critic/head/1/bias [8]",
                                      "critic/head/3/weight [7,8]",
                                      "critic/head/3/bias [7]",
                                      "critic/head/5/weight [11,7]",
                                      "critic/head/5/bias [11]"}));
  // every variable is one of exactly one network
  EXPECT_EQ(encoder.variables().size() + policy.variables().size() +
                critic.variables().size(),
            graph.variables().size());
}

TEST(NetworksTest, FeatureSizesAreThoseOfThePapers) {
  const auto size = [](EncoderKind kind, int64_t pixels) {
    Graph graph;
    return Encoder(graph, Small(kind),
                   LearningSpecOf(Shape({pixels, pixels, 9}), 1))
        .feature_size();
  };
  EXPECT_EQ(size(EncoderKind::kNature, 64), 4 * 4 * 64);
  EXPECT_EQ(size(EncoderKind::kDrq, 84), 35 * 35 * 32);
  EXPECT_EQ(size(EncoderKind::kLight, 64), 6 * 6 * 32);
}

TEST(NetworksTest, StateHasNeitherEncoderNorTrunk) {
  Graph graph;
  const LearningSpec spec = LearningSpecOf(Shape({4}), 2);
  const NetworkConfig config = Small(EncoderKind::kState);
  const Encoder encoder(graph, config, spec);
  const PolicyNetwork policy(graph, config, spec, encoder.feature_size());
  EXPECT_TRUE(encoder.variables().empty());
  EXPECT_EQ(graph.variables()[0].name, "policy/head/0/weight");
  const Output x = graph.Input("x", DType::kF32, Shape({3, 4}));
  EXPECT_EQ(encoder(x).encoded, x);
  EXPECT_EQ(policy(encoder(x)).action.shape(), Shape({3, 2}));
}

// A shared embedding reads a state in addition to pixels; otherwise each head
// does.
TEST(NetworksTest, AStateBesidePixelsJoinsTheEmbedding) {
  LearningSpec spec = LearningSpecOf(Shape({64, 64, 9}), 2);
  spec.task.state_size = 3;
  for (const bool is_shared : {false, true}) {
    NetworkConfig config = Small(EncoderKind::kLight);
    config.has_shared_embedding = is_shared;
    Graph graph;
    const Encoder encoder(graph, config, spec);
    const PolicyNetwork policy(graph, config, spec, encoder.feature_size());
    const CriticNetwork critic(graph, config, spec,
                               {.feature_size = encoder.feature_size()}, 11);
    EXPECT_THAT(
        NamesAndShapes(graph),
        ::testing::IsSupersetOf(
            is_shared
                ? std::vector<std::string>{"encoder/trunk/0/weight [5,1155]",
                                           "policy/head/0/weight [7,5]",
                                           "critic/head/0/weight [8,7]"}
                : std::vector<std::string>{"policy/trunk/0/weight [5,1152]",
                                           "policy/head/0/weight [7,8]",
                                           "critic/head/0/weight [8,10]"}));
    const Output pixels = graph.Input("x", DType::kU8, Shape({4, 64, 64, 9}));
    const Output state = graph.Input("s", DType::kF32, Shape({4, 3}));
    const Features features = encoder(pixels, state);
    EXPECT_EQ(features.state.is_valid(), !is_shared);
    const Output action = policy(features).action;
    EXPECT_EQ(critic(features, action).logits.shape(), Shape({4, 11}));
  }
}

// Each image has its convolutions, or all have one set; the heads read the
// features of all, then the state.
TEST(NetworksTest, SeveralImagesAreEncodedApartAndJoined) {
  LearningSpec spec = LearningSpecOf(Shape({64 * 64 * 9 + 36 * 36 * 9}), 2);
  spec.task.has_pixels = true;
  spec.task.images = {{"pixels/front", Shape({64, 64, 9})},
                      {"pixels/wrist", Shape({36, 36, 9})}};
  spec.task.state_size = 3;
  for (const bool is_shared : {false, true}) {
    NetworkConfig config = Small(EncoderKind::kLight);
    config.encoder.has_shared_weights = is_shared;
    Graph graph;
    const Encoder encoder(graph, config, spec);
    const PolicyNetwork policy(graph, config, spec, encoder.feature_size());
    EXPECT_EQ(encoder.feature_size(), 6 * 6 * 32 + 3 * 3 * 32);
    const std::vector<std::string> weights =
        is_shared
            ? std::vector<std::string>{"encoder/convnet/0/weight",
                                       "encoder/convnet/2/weight"}
            : std::vector<std::string>{"encoder/pixels/front/convnet/0/weight",
                                       "encoder/pixels/front/convnet/2/weight",
                                       "encoder/pixels/wrist/convnet/0/weight",
                                       "encoder/pixels/wrist/convnet/2/weight"};
    EXPECT_EQ(encoder.variables().size(), 2 * weights.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_EQ(graph.variable(encoder.variables()[2 * i]).name, weights[i]);
    }
    EXPECT_THAT(
        NamesAndShapes(graph),
        ::testing::IsSupersetOf(std::vector<std::string>{
            "policy/trunk/0/weight [5,1440]", "policy/head/0/weight [7,8]"}));
    const Output pixels =
        graph.Input("x", DType::kU8, Shape({4, spec.task.observation[0]}));
    const Output state = graph.Input("s", DType::kF32, Shape({4, 3}));
    EXPECT_EQ(policy(encoder(pixels, state)).action.shape(), Shape({4, 2}));
  }
}

// The features of an image do not depend on the other, nor on the way in.
TEST(NetworksTest, TheFeaturesOfAnImageAreItsOwn) {
  LearningSpec spec = LearningSpecOf(Shape({2 * 8 * 8 * 3}), 2);
  spec.task.has_pixels = true;
  spec.task.images = {{"pixels/a", Shape({8, 8, 3})},
                      {"pixels/b", Shape({8, 8, 3})}};
  NetworkConfig config = Small(EncoderKind::kCustom);
  config.encoder.channels = {4};
  config.encoder.kernels = {3};
  config.encoder.strides = {2};
  config.encoder.has_shared_weights = true;
  GraphRunner runner;
  const Encoder encoder(runner.graph(), config, spec);
  const auto image = [&](const std::string& name, uint64_t seed) {
    HostTensor pixels(DType::kU8, Shape({1, 8, 8, 3}));
    RandomStream random(seed, "pixels");
    for (uint8_t& x : pixels.MutableSpan<uint8_t>()) {
      x = static_cast<uint8_t>(random.UniformInt(256));
    }
    return runner.Input(name, std::move(pixels));
  };
  const Output a = image("a", 1), b = image("b", 2);
  const auto features = [&](const std::vector<Output>& images) {
    return runner.Eval(encoder(images).encoded);
  };
  const auto ab = features({a, b}), ba = features({b, a});
  // 3 x 3 x 4 numbers of each
  ASSERT_EQ(ab.size(), 72U);
  EXPECT_TRUE(std::equal(ab.begin(), ab.begin() + 36, ba.begin() + 36));
  EXPECT_NE(ab, ba);
  EXPECT_EQ(runner.Eval(encoder(JoinImages({a, b})).encoded), ab);
}

// A recipe's needs at the start: small actions, and values near v_min.
TEST(NetworksTest, FirstValuesOfLastLayersAreScaledAndLean) {
  NetworkConfig config = Small(EncoderKind::kState);
  config.critic_bias_slope = 0.15;
  const LearningSpec spec = LearningSpecOf(Shape({4}), 2);
  GraphRunner runner;
  Graph& graph = runner.graph();
  const PolicyNetwork policy(graph, config, spec, 4);
  const CriticNetwork critic(graph, config, spec, {.feature_size = 4}, 11);
  runner.store().Declare(graph);
  const auto bias =
      testing::ToDoubles(runner.store().Get("critic/head/5/bias").view());
  for (size_t k = 0; k < bias.size(); ++k) {
    EXPECT_NEAR(bias[k], -0.15 * static_cast<double>(k), 1e-6);
  }
  // orthogonal rows of norm 0.01
  const auto weight =
      testing::ToDoubles(runner.store().Get("policy/head/5/weight").view());
  double square = 0.0, product = 0.0;
  for (size_t i = 0; i < 6; ++i) {
    square += weight[i] * weight[i];
    product += weight[i] * weight[6 + i];
  }
  EXPECT_NEAR(std::sqrt(square), 0.01, 1e-8);
  EXPECT_NEAR(product, 0.0, 1e-10);
}

TEST(NetworksTest, RefusesObservationsThatTheEncoderCannotTake) {
  const auto check = [](EncoderKind kind, const Shape& observation,
                        int64_t actions) {
    return MessageOf<ConfigError>(
        [&] { CheckSpec(Small(kind), LearningSpecOf(observation, actions)); });
  };
  EXPECT_EQ(check(EncoderKind::kState, Shape({64, 64, 9}), 1),
            "agent.networks.encoder.kind: state wants observations [O], got "
            "[64,64,9]; hint: an encoder of pixels, or task.pixels.enabled: "
            "false");
  EXPECT_EQ(check(EncoderKind::kDrq, Shape({24}), 1),
            "agent.networks.encoder.kind: wants pixels, observations [H,W,C], "
            "got [24]; hint: task.pixels.enabled: true, or encoder.kind: "
            "state");
  EXPECT_EQ(check(EncoderKind::kNature, Shape({35, 64, 9}), 1),
            "agent.networks.encoder.kind: images [35,64,9] are too small for "
            "its convolutions; hint: larger task.pixels.height and width");
  EXPECT_EQ(check(EncoderKind::kState, Shape({24}), 0),
            "D4PG: want at least one action, got 0");
  LearningSpec two = LearningSpecOf(Shape({1000}), 1);
  two.task.has_pixels = true;
  two.task.images = {{"pixels/front", Shape({64, 64, 9})},
                     {"pixels/wrist", Shape({64, 35, 3})}};
  NetworkConfig shared = Small(EncoderKind::kNature);
  shared.encoder.has_shared_weights = true;
  EXPECT_EQ(MessageOf<ConfigError>([&] { CheckSpec(shared, two); }),
            "agent.networks.encoder.kind: images [64,35,3] are too small for "
            "its convolutions; hint: larger task.pixels.height and width");
  two.task.images[1].shape = Shape({64, 64, 3});
  EXPECT_EQ(MessageOf<ConfigError>([&] { CheckSpec(shared, two); }),
            "agent.networks.encoder.shared_weights: want images of as many "
            "channels, but 'pixels/front' is [64,64,9] and 'pixels/wrist' "
            "[64,64,3]; hint: shared_weights: false");
  LearningSpec with_state = LearningSpecOf(Shape({24}), 1);
  with_state.task.state_size = 3;
  EXPECT_EQ(
      MessageOf<ConfigError>(
          [&] { CheckSpec(Small(EncoderKind::kState), with_state); }),
      "D4PG: a state of 3 numbers, but the observation [24] has no pixels");
}

}  // namespace
}  // namespace replicant::agents::d4pg
