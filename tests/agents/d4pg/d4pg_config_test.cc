#include <fmt/format.h>
#include <gtest/gtest.h>

#include "agents/d4pg/agent.h"
#include "agents/d4pg/config.h"
#include "base/config/load.h"
#include "tests/support/message_of.h"

namespace replicant::agents::d4pg {
namespace {

using testing::MessageOf;

D4pgConfig Load(const std::string& yaml) {
  return config::Load<D4pgConfig>(
             config::Document::FromText("agent.yaml", yaml))
      .config;
}

TEST(D4pgConfigTest, NamedEncodersAreThoseOfTheirPapers) {
  const auto layers = [](const std::string& kind) {
    std::vector<std::vector<int64_t>> all;
    for (const ConvLayer& layer :
         Load("networks: {encoder: {kind: " + kind + "}}")
             .networks.encoder.Layers()) {
      all.push_back({layer.channels, layer.kernel, layer.stride});
    }
    return all;
  };
  using Layers = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(layers("state"), Layers());
  EXPECT_EQ(layers("nature"), (Layers{{32, 8, 4}, {64, 4, 2}, {64, 3, 1}}));
  EXPECT_EQ(layers("drq"),
            (Layers{{32, 3, 2}, {32, 3, 1}, {32, 3, 1}, {32, 3, 1}}));
  EXPECT_EQ(layers("light"), (Layers{{16, 8, 4}, {32, 4, 2}}));
  EXPECT_EQ(
      layers("custom, channels: [5, 6], kernels: [3, 2], strides: [2, 1]"),
      (Layers{{5, 3, 2}, {6, 2, 1}}));
}

TEST(D4pgConfigTest, RefusesWhatDoesNotFitTogetherWithItsPlace) {
  EXPECT_EQ(MessageOf([] { Load("random_shift: 4"); }),
            "agent.yaml:1:15: random_shift: wants pixels, but "
            "networks.encoder.kind is state");
  EXPECT_EQ(MessageOf([] {
              Load(
                  "networks: {encoder: {kind: drq, channels: [5], kernels: "
                  "[3], strides: [1]}}");
            }),
            "agent.yaml:1:28: networks.encoder.kind: channels, kernels and "
            "strides are only for kind custom");
  EXPECT_EQ(MessageOf([] {
              Load(
                  "networks:\n  encoder:\n    kind: custom\n    channels: [5, "
                  "6]\n    kernels: [3]\n    strides: [1, 1]\n");
            }),
            "agent.yaml:4:15: networks.encoder.channels: want as many channels "
            "as kernels and strides, got 2, 1 and 2");
  EXPECT_EQ(MessageOf([] { Load("distribution: {range: running, v_max: 9}"); }),
            "agent.yaml:1:23: distribution.range: running finds v_min and "
            "v_max itself, but v_max 9 is given; want null");
  EXPECT_EQ(MessageOf([] { Load("observations: {clip: 0}"); }),
            "agent.yaml:1:22: observations.clip: 0 is outside [0.1, 1000000] "
            "(largest size of a normalized number)");
  EXPECT_EQ(MessageOf([] { Load("distribution: {num_atoms: 1}"); }),
            "agent.yaml:1:27: distribution.num_atoms: 1 is outside [2, 1001] "
            "(number of atoms: values that a return can take)");
  EXPECT_EQ(
      MessageOf([] { Load("average_explores: true"); }),
      "agent.yaml:1:19: average_explores: true, but average_decay 0 keeps "
      "no average; want false");
  EXPECT_EQ(MessageOf([] { Load("representation: {horizon: 5}"); }),
            "agent.yaml:1:17: representation: horizon 5 predicts the embedding "
            "that policy and critic share; want networks.shared_embedding: "
            "true, got false");
  EXPECT_EQ(MessageOf([] {
              Load(
                  "{networks: {shared_embedding: true}, target: {has_encoder: "
                  "false}, representation: {horizon: 5}}");
            }),
            "agent.yaml:1:84: representation: horizon 5 predicts embeddings of "
            "the target encoder; want target.has_encoder: true, got false");
  EXPECT_EQ(MessageOf([] { Load("behaviour_cloning: {weight: -1}"); }),
            "agent.yaml:1:29: behaviour_cloning.weight: -1 is outside [0, "
            "1000000] (weight of the mean squared difference between the "
            "policy's actions and those of prior data, each in [-1, 1], in the "
            "policy's loss; 0: none. Needs replay.prior.folder)");
  // a section of the first versions
  EXPECT_EQ(MessageOf([] { Load("prediction: {horizon: 5}"); }),
            "agent.yaml:1:13: prediction: gone; agent.representation takes its "
            "place, with other networks and losses; "
            "configs/base/representation.yaml has its settings");
}

TEST(D4pgConfigTest, ARepresentationNeedsWindowsOfItsHorizon) {
  const auto agent = MakeAgent(Load(
      "{networks: {shared_embedding: true}, representation: {horizon: 5}}"));
  LearningSpec spec{.task = {.observation = Shape({4}),
                             .action_minimum = {-1.0},
                             .action_maximum = {1.0}}};
  EXPECT_EQ(MessageOf<ConfigError>([&] { agent->Check(spec); }),
            "agent.representation.horizon: 5, but the table's window is 0; "
            "want as many steps as the table's window has");
  spec.window = 5;
  agent->Check(spec);
}

TEST(D4pgConfigTest, ARepresentationHasTargetsWithinItsHorizon) {
  EXPECT_EQ(MessageOf<ConfigError>([] {
              Load(
                  "{networks: {shared_embedding: true}, "
                  "representation: {horizon: 5, targets: 6}}");
            }),
            "agent.yaml:1:76: representation.targets: 6 next embeddings of 5 "
            "steps; want at most horizon 5");
  EXPECT_EQ(MessageOf<ConfigError>([] {
              Load(
                  "{networks: {shared_embedding: true}, "
                  "representation: {horizon: 5, targets: 1}}");
            }),
            "agent.yaml:1:76: representation.targets: 1 next embedding of 5 "
            "steps: no other counts for the rest; want 0 or at least 2");
  Load(
      "{networks: {shared_embedding: true}, "
      "representation: {horizon: 1, targets: 1}}");
  const auto observations = [](int targets) {
    return MakeAgent(Load(fmt::format("{{networks: {{shared_embedding: true}}, "
                                      "representation: {{horizon: 5, targets: "
                                      "{}}}}}",
                                      targets)))
        ->NumWindowObservations(5);
  };
  EXPECT_EQ(observations(0), 5);
  EXPECT_EQ(observations(2), 2);
}

TEST(D4pgConfigTest, BehaviourCloningNeedsPriorData) {
  const auto agent = MakeAgent(Load("{behaviour_cloning: {weight: 0.5}}"));
  LearningSpec spec{.task = {.observation = Shape({4}),
                             .action_minimum = {-1.0},
                             .action_maximum = {1.0}}};
  EXPECT_EQ(MessageOf<ConfigError>([&] { agent->Check(spec); }),
            "agent.behaviour_cloning.weight: 0.5, but there is no prior data; "
            "want replay.prior.folder, or 0");
  spec.has_prior = true;
  agent->Check(spec);
}

}  // namespace
}  // namespace replicant::agents::d4pg
