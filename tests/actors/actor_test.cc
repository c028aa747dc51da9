#include "actors/actor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "actors/policy_runner.h"
#include "agents/d4pg/agent.h"
#include "base/error.h"
#include "engine/runtime/parameters.h"
#include "env/task_config.h"
#include "env/tasks/suite.h"
#include "tests/support/log_lines.h"

namespace replicant::actors {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

template <typename T>
std::vector<T> ToVector(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Keeps what it is given.
class RecordingSink : public replay::StepSink {
 public:
  struct Step {
    std::vector<float> observation;
    std::vector<uint8_t> frame;
    std::vector<float> action;
    float reward;
    float discount;
  };
  struct Episode {
    std::vector<Step> steps;
    std::optional<std::vector<float>> last_observation;
    std::vector<uint8_t> last_frame;
  };

  void BeginEpisode() override { episodes.emplace_back(); }
  void Append(const replay::Step& step) override {
    episodes.back().steps.push_back(
        {ToVector<float>(step.observation), ToVector<uint8_t>(step.frame),
         ToVector<float>(step.action), step.reward, step.discount});
  }
  void EndEpisode(std::span<const std::byte> observation,
                  std::span<const std::byte> frame) override {
    episodes.back().last_observation = ToVector<float>(observation);
    episodes.back().last_frame = ToVector<uint8_t>(frame);
  }

  std::vector<Episode> episodes;
};

struct Rig {
  explicit Rig(const env::TaskConfig& config, int64_t num_environments,
               ActorOptions actor_options = {})
      : environments(env::MakeConfiguredEnvironments(
                         env::TaskRegistry(env::SuiteTasks()), config,
                         /*seed=*/3, /*first_index=*/0, num_environments),
                     {}),
        sinks(static_cast<size_t>(num_environments)) {
    const auto alone = env::MakeConfiguredEnvironment(
        env::TaskRegistry(env::SuiteTasks()), config, 3, 0);
    task = agents::MakeTaskSpec(config, *alone);
    agents::d4pg::NetworkConfig networks{.policy_hidden_sizes = {8}};
    if (config.has_pixels) {
      networks.encoder = {.kind = agents::d4pg::EncoderKind::kCustom,
                          .channels = {4},
                          .kernels = {4},
                          .strides = {4}};
    }
    policy.emplace(*agents::d4pg::MakeAgent({.networks = networks}), task,
                   PolicyRunnerOptions{.backend = "reference",
                                       .num_environments = num_environments});
    std::vector<replay::StepSink*> pointers;
    for (RecordingSink& sink : sinks) pointers.push_back(&sink);
    actor_options.num_all_environments = num_environments;
    actor.emplace(task, &environments, &*policy, pointers, actor_options);
  }

  env::VectorEnvironment environments;
  std::vector<RecordingSink> sinks;
  agents::TaskSpec task;
  std::optional<PolicyRunner> policy;
  std::optional<Actor> actor;
};

// 1000 control steps of the task in 10 agent steps.
constexpr int kRepeat = 100;
const env::TaskConfig kState = {.name = "cartpole-balance",
                                .action_repeat = kRepeat};

TEST(ActorTest, HandsOnWholeEpisodes) {
  std::vector<EpisodeResult> results;
  Rig rig(kState, 2, {.on_episode = [&](const EpisodeResult& result) {
            results.push_back(result);
          }});
  // 10 steps and the one that starts the next episode, twice
  for (int i = 0; i < 22; ++i) rig.actor->Step();
  EXPECT_EQ(rig.actor->num_steps(), 2 * 20);
  for (const RecordingSink& sink : rig.sinks) {
    ASSERT_EQ(sink.episodes.size(), 3U);
    for (int i = 0; i < 2; ++i) {
      const RecordingSink::Episode& episode =
          sink.episodes[static_cast<size_t>(i)];
      ASSERT_EQ(episode.steps.size(), 10U);
      EXPECT_TRUE(episode.last_observation.has_value());
      // a time limit cuts off: the learner bootstraps
      for (const auto& step : episode.steps) EXPECT_EQ(step.discount, 1.0F);
    }
    EXPECT_TRUE(sink.episodes[2].steps.empty());
  }
  ASSERT_EQ(results.size(), 4U);
  double sum = 0.0;
  for (const auto& step : rig.sinks[0].episodes[0].steps) sum += step.reward;
  EXPECT_EQ(results[0].environment, 0);
  EXPECT_EQ(results[0].length, 10);
  // each reward is the mean of 100 control steps
  EXPECT_NEAR(results[0].episode_return, 100.0 * sum, 1e-3);
  EXPECT_EQ(results[1].environment, 1);
}

// Would catch a run whose curves stay empty without a word.
TEST(ActorTest, ReportsAnEpisodeThatMayHaveNoEnd) {
  const replicant::testing::LogLines lines;
  // episodes have 1000 control steps
  Rig rig(kState, 2, {.long_episode_steps = 600});
  for (int i = 0; i < 5; ++i) rig.actor->Step();
  EXPECT_EQ(rig.actor->num_endless(), 0);
  EXPECT_THAT(lines.lines(), ::testing::IsEmpty());
  for (int i = 0; i < 30; ++i) rig.actor->Step();
  EXPECT_EQ(rig.actor->num_endless(), 2);
  ASSERT_EQ(lines.lines().size(), 2U);
  EXPECT_EQ(lines.lines()[0],
            "environment 0: an episode goes on after 600 control steps; "
            "without an end it has no return; hint: give the environment a "
            "time limit, such as gymnasium.wrappers.TimeLimit");
  // an episode that ends there is none
  Rig exact(kState, 1, {.long_episode_steps = 1000});
  for (int i = 0; i < 22; ++i) exact.actor->Step();
  EXPECT_EQ(exact.actor->num_endless(), 0);
}

// Step t comes with o_t, not with the observation that followed.
TEST(ActorTest, AStepHoldsTheObservationThatItActedOn) {
  Rig rig(kState, 1, {.exploration = {.random_steps = 1000}});
  for (int i = 0; i < 10; ++i) rig.actor->Step();
  const auto same = env::MakeConfiguredEnvironment(
      env::TaskRegistry(env::SuiteTasks()), kState, /*seed=*/3, /*index=*/0);
  std::vector<double> state(
      static_cast<size_t>(same->observation_spec().state_size()));
  same->Reset({.state = state, .pixels = {}});
  for (const auto& step : rig.sinks[0].episodes[0].steps) {
    EXPECT_EQ(step.observation, std::vector<float>(state.begin(), state.end()));
    ASSERT_EQ(step.action.size(), 1U);
    const std::vector<double> action = {static_cast<double>(step.action[0])};
    const env::TimeStep made =
        same->Step(action, {.state = state, .pixels = {}});
    EXPECT_EQ(step.reward, static_cast<float>(made.reward));
  }
  EXPECT_EQ(*rig.sinks[0].episodes[0].last_observation,
            std::vector<float>(state.begin(), state.end()));
}

// A restored actor makes the same steps as an actor that was not stopped.
TEST(ActorTest, GoesOnFromAState) {
  for (const auto& [has_pixels, hold_steps] :
       {std::pair(false, 1), {true, 1}, {false, 3}}) {
    env::TaskConfig config = kState;
    config.has_pixels = has_pixels;
    config.pixels = {.camera = {.height = 16, .width = 16}, .frame_stack = 2};
    const ActorOptions options = {
        .exploration = {.random_steps = 20,
                        .initial_hold_steps = hold_steps,
                        .decay_steps = 30},
        .keeps_state = true};
    // the episodes have 10 steps: mid in one, at its end, at its start
    for (const int num_steps : {4, 10, 11, 15}) {
      Rig whole(config, 2, options), parts(config, 2, options);
      for (int i = 0; i < num_steps; ++i) whole.actor->Step();
      const ActorState state = whole.actor->state();
      parts.actor->Restore(state);
      EXPECT_EQ(parts.actor->num_steps(), whole.actor->num_steps());
      for (int i = 0; i < 14; ++i) {
        whole.actor->Step();
        parts.actor->Step();
      }
      for (size_t e = 0; e < 2; ++e) {
        // the sink got the open episode from its start on
        const auto& all = whole.sinks[e].episodes;
        const auto& some = parts.sinks[e].episodes;
        const size_t passed = all.size() + 1 - some.size();
        for (size_t k = 1; k < some.size(); ++k) {
          const auto &a = all[passed + k - 1], &b = some[k];
          ASSERT_EQ(a.steps.size(), b.steps.size()) << num_steps;
          for (size_t t = 0; t < a.steps.size(); ++t) {
            EXPECT_EQ(a.steps[t].observation, b.steps[t].observation);
            EXPECT_EQ(a.steps[t].frame, b.steps[t].frame);
            EXPECT_EQ(a.steps[t].action, b.steps[t].action);
            EXPECT_EQ(a.steps[t].reward, b.steps[t].reward);
          }
          EXPECT_EQ(a.last_observation, b.last_observation);
        }
      }
      EXPECT_EQ(parts.actor->state().num_calls, whole.actor->state().num_calls);
    }
  }
}

TEST(ActorTest, RefusesAStateOfOtherEnvironments) {
  Rig two(kState, 2, {.keeps_state = true}), one(kState, 1);
  EXPECT_THROW(one.actor->Restore(two.actor->state()), InvalidArgument);
}

TEST(ActorTest, AnotherPositionGivesOtherEpisodes) {
  const agents::ExplorationConfig random = {.random_steps = 1000};
  Rig first(kState, 1, {.exploration = random}),
      again(kState, 1, {.exploration = random, .first_position = 1000});
  first.actor->Step();
  again.actor->Step();
  const auto &a = first.sinks[0].episodes[0].steps[0],
             &b = again.sinks[0].episodes[0].steps[0];
  EXPECT_NE(a.observation, b.observation);
  EXPECT_NE(a.action, b.action);
}

// An actor that is started again does not act at random again.
TEST(ActorTest, SchedulesFollowTheStepsOfAllActors) {
  Rig rig(kState, 1, {.exploration = {.random_steps = 1000}});
  Rig late(kState, 1, {.exploration = {.random_steps = 1000}});
  late.actor->SetGlobalSteps(1000);
  EXPECT_EQ(late.actor->num_all_steps(), 1000);
  rig.actor->Step();
  late.actor->Step();
  EXPECT_NE(rig.sinks[0].episodes[0].steps[0].action,
            late.sinks[0].episodes[0].steps[0].action);
  EXPECT_EQ(rig.actor->num_all_steps(), 1);
  EXPECT_EQ(late.actor->num_all_steps(), 1000);
}

TEST(ActorTest, FramesAreTheNewestOfTheStack) {
  const env::TaskConfig pixels = {
      .name = "cartpole-balance",
      .action_repeat = kRepeat,
      .has_pixels = true,
      .pixels = {.camera = {.height = 16, .width = 16}, .frame_stack = 2}};
  Rig rig(pixels, 1, {.exploration = {.random_steps = 1000}});
  for (int i = 0; i < 10; ++i) rig.actor->Step();
  const auto same = env::MakeConfiguredEnvironment(
      env::TaskRegistry(env::SuiteTasks()), pixels, /*seed=*/3, /*index=*/0);
  std::vector<uint8_t> stack(16 * 16 * 6);
  same->Reset({.state = {}, .pixels = stack});
  const auto newest = [&] {
    std::vector<uint8_t> frame;
    for (size_t i = 0; i < stack.size(); i += 6) {
      frame.insert(frame.end(), stack.begin() + static_cast<int64_t>(i) + 3,
                   stack.begin() + static_cast<int64_t>(i) + 6);
    }
    return frame;
  };
  for (const auto& step : rig.sinks[0].episodes[0].steps) {
    EXPECT_TRUE(step.observation.empty());
    EXPECT_EQ(step.frame, newest());
    const std::vector<double> action = {static_cast<double>(step.action[0])};
    same->Step(action, {.state = {}, .pixels = stack});
  }
  EXPECT_EQ(rig.sinks[0].episodes[0].last_frame, newest());
}

// Of several cameras the frame of a step is the frames of all in their order.
TEST(ActorTest, TheFramesOfSeveralCamerasAreStoredTogether) {
  env::TaskConfig config = kState;
  config.has_pixels = true;
  config.pixels.frame_stack = 2;
  const env::CameraOptions fixed = {
      .camera = "fixed", .height = 16, .width = 16};
  const env::CameraOptions cart = {
      .camera = "lookatcart", .height = 8, .width = 12};
  const ActorOptions options = {.exploration = {.random_steps = 8}};
  const auto frames_of = [&](std::vector<env::CameraOptions> cameras) {
    config.pixels.cameras = std::move(cameras);
    Rig rig(config, 1, options);
    // then one with the policy, which takes what the environment gives
    for (int i = 0; i < 9; ++i) rig.actor->Step();
    std::vector<std::vector<uint8_t>> frames;
    for (const auto& step : rig.sinks[0].episodes[0].steps) {
      frames.push_back(step.frame);
    }
    return frames;
  };
  const auto both = frames_of({fixed, cart});
  const auto first = frames_of({fixed}), second = frames_of({cart});
  for (size_t i = 0; i < 8; ++i) {
    auto expected = first[i];
    expected.insert(expected.end(), second[i].begin(), second[i].end());
    EXPECT_EQ(both[i], expected) << "step " << i;
  }
}

// The state next to pixels equals the state of a task without them, in the
// replay and for the policy.
TEST(ActorTest, AStateBesidePixelsIsThatOfTheTask) {
  env::TaskConfig config = kState;
  config.has_pixels = true;
  config.pixels = {.camera = {.height = 16, .width = 16}, .frame_stack = 2};
  config.has_state_beside_pixels = true;
  const ActorOptions options = {.exploration = {.random_steps = 8}};
  Rig both(config, 1, options), state(kState, 1, options);
  for (int i = 0; i < 8; ++i) {
    both.actor->Step();
    state.actor->Step();
  }
  const auto& steps = both.sinks[0].episodes[0].steps;
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(steps[i].observation,
              state.sinks[0].episodes[0].steps[i].observation);
    EXPECT_EQ(steps[i].frame.size(), 16U * 16 * 3);
  }
  both.actor->Step();
  EXPECT_THAT(both.policy->states(),
              ::testing::ElementsAreArray(
                  both.sinks[0].episodes[0].steps[8].observation));
}

TEST(ActorTest, RandomAtFirstThenByThePolicy) {
  Rig rig(kState, 1, {.exploration = {.random_steps = 4, .final_scale = 0.0}});
  // a policy that always gives tanh(100) = 1
  runtime::VariableStore& variables = rig.policy->variables();
  std::string last_bias;
  for (const auto& [name, variable] : variables.variables()) {
    if (name.ends_with("bias") && variable.spec.shape == Shape({1})) {
      last_bias = name;
    }
  }
  ASSERT_FALSE(last_bias.empty());
  const float large = 100.0F;
  variables.Set(last_bias, TensorView(DType::kF32, Shape({1}), &large));
  for (int i = 0; i < 8; ++i) rig.actor->Step();
  const auto& steps = rig.sinks[0].episodes[0].steps;
  for (size_t i = 0; i < 4; ++i) EXPECT_LT(steps[i].action[0], 1.0F);
  for (size_t i = 4; i < 8; ++i) EXPECT_EQ(steps[i].action[0], 1.0F);
}

TEST(ActorTest, HeldNoiseStaysForItsSteps) {
  Rig rig(kState, 1,
          {.exploration = {
               .random_steps = 3, .final_scale = 0.1, .final_hold_steps = 3}});
  // a policy that always gives 0
  runtime::VariableStore& variables = rig.policy->variables();
  for (const auto& [name, variable] : variables.variables()) {
    variables.Set(name,
                  HostTensor(variable.spec.dtype, variable.spec.shape).view());
  }
  for (int i = 0; i < 9; ++i) rig.actor->Step();
  const auto& steps = rig.sinks[0].episodes[0].steps;
  for (size_t i = 0; i + 1 < 9; ++i) {
    EXPECT_EQ(steps[i].action == steps[i + 1].action, i % 3 != 2) << i;
  }
}

TEST(ActorTest, TheSameSeedActsTheSame) {
  const auto actions = [] {
    Rig rig(kState, 2,
            {.exploration = {.random_steps = 4, .final_scale = 0.5}});
    for (int i = 0; i < 9; ++i) rig.actor->Step();
    std::vector<float> all;
    for (const auto& step : rig.sinks[1].episodes[0].steps) {
      all.push_back(step.action[0]);
    }
    return all;
  };
  const std::vector<float> first = actions();
  EXPECT_EQ(first, actions());
  EXPECT_EQ(first.size(), 9U);
}

TEST(PolicyRunnerTest, TakesUpPublishedParameters) {
  Rig from(kState, 1);
  Rig to(kState, 1);
  std::vector<std::string> names;
  for (const auto& [name, variable] : from.policy->variables().variables()) {
    names.push_back(name);
    HostTensor value(variable.spec.dtype, variable.spec.shape);
    for (float& element : value.MutableSpan<float>()) element = 0.25F;
    from.policy->variables().Set(name, value.view());
  }
  const std::string bytes =
      runtime::EncodeVariables(from.policy->variables(), names);
  to.policy->SetParameters(std::as_bytes(std::span(bytes)), "policy");
  for (const std::string& name : names) {
    EXPECT_THAT(to.policy->variables().Get(name).Span<float>(), Each(0.25F));
  }
}

}  // namespace
}  // namespace replicant::actors
