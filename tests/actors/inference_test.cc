// Inference by one server for several actors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <optional>
#include <thread>

#include "actors/batched_policy.h"
#include "actors/inference_server.h"
#include "actors/remote_policy.h"
#include "agents/d4pg/agent.h"
#include "base/error.h"
#include "base/rpc/wire.h"
#include "engine/runtime/parameters.h"
#include "tests/base/rpc/running_server.h"
#include "tests/support/list_fields.h"
#include "tests/support/message_of.h"
#include "tests/support/own_address.h"
#include "tests/support/unwrapped.h"

namespace replicant::actors {
namespace {

using replicant::testing::MessageOf;
using replicant::testing::OwnAddress;
using ::testing::Each;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr int64_t kObservation = 3;
constexpr int64_t kActions = 2;

agents::TaskSpec MakeTask(int64_t observation = kObservation) {
  return {.observation = Shape({observation}),
          .action_minimum = {-1.0, -1.0},
          .action_maximum = {1.0, 1.0}};
}

std::shared_ptr<const agents::Agent> MakeAgent() {
  return agents::d4pg::MakeAgent({.networks = {.policy_hidden_sizes = {8}}});
}

PolicyRunnerOptions Options(int64_t num_environments = 1) {
  return {.backend = "reference", .num_environments = num_environments};
}

std::vector<float> Observations(int64_t first, int64_t count) {
  std::vector<float> all;
  for (int64_t i = 0; i < count * kObservation; ++i) {
    all.push_back(0.1F * static_cast<float>(first * kObservation + i) - 1.0F);
  }
  return all;
}

// The actions that a separate policy would choose without noise.
std::vector<float> MeanActions(int64_t first, int64_t count,
                               std::span<const std::byte> parameters = {}) {
  PolicyRunner runner(*MakeAgent(), MakeTask(), Options(count));
  if (!parameters.empty()) runner.SetParameters(parameters, "parameters");
  const std::vector<float> observations = Observations(first, count);
  std::memcpy(runner.observations().data(), observations.data(),
              observations.size() * sizeof(float));
  std::ranges::fill(runner.noise_scales(), 0.0F);
  const auto actions = runner.Act(0).Span<float>();
  return {actions.begin(), actions.end()};
}

// All variables of the policy at one value.
std::string ParametersOf(float value) {
  PolicyRunner runner(*MakeAgent(), MakeTask(), Options());
  std::vector<std::string> names;
  for (const auto& [name, variable] : runner.variables().variables()) {
    names.push_back(name);
    HostTensor filled(variable.spec.dtype, variable.spec.shape);
    std::ranges::fill(filled.MutableSpan<float>(), value);
    runner.variables().Set(name, filled.view());
  }
  return runtime::EncodeVariables(runner.variables(), names);
}

class BatchedPolicyTest : public ::testing::Test {
 protected:
  // Actions of rows [first, first + scales.size()).
  std::vector<float> Act(int64_t first, const std::vector<float>& scales) {
    const auto count = static_cast<int64_t>(scales.size());
    const std::vector<float> observations = Observations(first, count);
    std::vector<float> actions(static_cast<size_t>(count * kActions));
    const BatchedPolicy::Rows rows{
        .observations = std::as_bytes(std::span(observations)),
        .noise_scales = scales,
        .actions = actions};
    policy_.Act({&rows, 1});
    return actions;
  }

  BatchedPolicy policy_{*MakeAgent(), MakeTask(), Options(), /*max_rows=*/5};
};

// Any number of rows, also more than the largest plan has. Would catch rows
// that get the actions of others.
TEST_F(BatchedPolicyTest, RowsGetTheActionsOfAPolicyOfTheirOwn) {
  for (const int64_t count : {1, 2, 3, 5, 12}) {
    const std::vector<float> scales(static_cast<size_t>(count), 0.0F);
    EXPECT_THAT(Act(7, scales),
                Pointwise(FloatNear(1e-6F), MeanActions(7, count)))
        << count;
  }
}

// A padded batch is the smallest plan that holds the rows.
TEST_F(BatchedPolicyTest, RunsTheSmallestPlan) {
  Act(0, std::vector<float>(3, 0.0F));
  EXPECT_EQ(policy_.num_computed_rows(), 4);
  Act(0, std::vector<float>(1, 0.0F));
  EXPECT_EQ(policy_.num_computed_rows(), 4 + 1);
}

// Would catch a scale that is another actor's, and noise that comes twice.
TEST_F(BatchedPolicyTest, EachRowHasNoiseOfItsOwnScale) {
  const std::vector<float> mean = MeanActions(0, 2);
  const std::vector<float> first = Act(0, {0.0F, 0.3F});
  const std::vector<float> second = Act(0, {0.0F, 0.3F});
  for (size_t i = 0; i < kActions; ++i) {
    EXPECT_NEAR(first[i], mean[i], 1e-6F);
    EXPECT_NEAR(second[i], mean[i], 1e-6F);
  }
  EXPECT_NE(first[2], mean[2]);
  EXPECT_NE(first[2], second[2]);
}

// Would catch states that stay behind, or go to another row.
TEST(InferenceProtocolTest, TheTableListsTheFieldsOfTheMessages) {
  const std::string table = testing::Unwrapped(InferenceProtocol().table);
  EXPECT_THAT(table,
              HasSubstr("1 describe request: no part reply: " +
                        testing::ListFields<InferenceInfo>() + " 2 act "));
  EXPECT_THAT(
      table, HasSubstr(" request part 0: " + testing::ListFields<ActRequest>() +
                       ", the states"));
  EXPECT_THAT(table,
              HasSubstr(" reply: " + testing::ListFields<ActReply>() + " "));
}

TEST(BatchedPolicyOfPixelsTest, AStateBesidePixelsGoesWithItsRow) {
  const agents::TaskSpec task{.has_pixels = true,
                              .observation = Shape({4, 4, 3}),
                              .state_size = 2,
                              .action_minimum = {-1.0},
                              .action_maximum = {1.0}};
  const auto agent = agents::d4pg::MakeAgent(
      {.networks = {.encoder = {.kind = agents::d4pg::EncoderKind::kCustom,
                                .channels = {4},
                                .kernels = {4},
                                .strides = {4}},
                    .policy_hidden_sizes = {8}}});
  std::vector<std::byte> pixels(3 * 48);
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::byte>(i);
  }
  const std::vector<float> states = {0.5F, -1.0F, 2.0F, 0.25F, -3.0F, 1.0F};
  PolicyRunner alone(*agent, task, Options(3));
  std::ranges::copy(pixels, alone.observations().bytes().begin());
  std::ranges::copy(states, alone.states().begin());
  std::ranges::fill(alone.noise_scales(), 0.0F);
  const auto wanted = alone.Act(0).Span<float>();

  BatchedPolicy policy(*agent, task, Options(), /*max_rows=*/2);
  EXPECT_EQ(policy.state_size(), 2);
  const std::vector<float> scales(3, 0.0F);
  std::vector<float> actions(3);
  const BatchedPolicy::Rows rows{.observations = pixels,
                                 .states = states,
                                 .noise_scales = scales,
                                 .actions = actions};
  policy.Act({&rows, 1});
  EXPECT_THAT(actions, Pointwise(FloatNear(1e-6F), wanted));
  std::ranges::fill(alone.states(), 0.0F);
  EXPECT_THAT(alone.Act(0).Span<float>(),
              ::testing::Not(Pointwise(FloatNear(1e-6F), actions)));
}

class InferenceTest : public ::testing::Test {
 protected:
  // A server with a policy, in a separate thread.
  struct Service {
    Service(InferenceTest* test, const std::string& endpoint)
        : policy(*MakeAgent(), MakeTask(), Options(), /*max_rows=*/4),
          inference(&policy,
                    {.max_wait = std::chrono::milliseconds(5),
                     .poll_parameters = [test] { return test->Poll(); }}),
          server(InferenceProtocol(), endpoint,
                 [this](rpc::Server& s) { inference.AttachTo(s); },
                 {.tick_interval = std::chrono::milliseconds(5)}) {}

    BatchedPolicy policy;
    InferenceServer inference;
    rpc::testing::RunningServer server;
  };

  // The newest parameters, unless a server has them.
  std::optional<PublishedParameters> Poll() {
    const uint64_t version = version_;
    if (version == served_) return std::nullopt;
    served_ = version;
    return PublishedParameters{
        .version = version,
        .agent_steps = static_cast<int64_t>(100 * version),
        .bytes = BytesOf(version)};
  }
  std::span<const std::byte> BytesOf(uint64_t version) const {
    return std::as_bytes(std::span(version == 1 ? first_ : second_));
  }
  static std::unique_ptr<RemotePolicy> MakeRemote(const std::string& endpoint,
                                                  int64_t count) {
    return std::make_unique<RemotePolicy>(
        MakeTask(),
        RemotePolicyOptions{.find_server = [endpoint] { return endpoint; },
                            .num_environments = count});
  }
  // Acts without noise on rows [first, ...) of all environments.
  static std::vector<float> Act(RemotePolicy& remote, int64_t first) {
    const MutableTensorView rows = remote.observations();
    const std::vector<float> observations =
        Observations(first, rows.shape()[0]);
    std::memcpy(rows.data(), observations.data(), rows.size_bytes());
    std::ranges::fill(remote.noise_scales(), 0.0F);
    const auto actions = remote.Act(0).Span<float>();
    return {actions.begin(), actions.end()};
  }

  const std::string first_ = ParametersOf(0.1F), second_ = ParametersOf(0.2F);
  std::atomic<uint64_t> version_ = 1, served_ = 0;
};

// Two actors at once, of different sizes. Would catch answers that go to the
// other actor.
TEST_F(InferenceTest, EveryActorGetsItsOwnActions) {
  Service service(this, OwnAddress());
  const auto run = [&](int64_t first, int64_t count) {
    const auto remote = MakeRemote(service.server.endpoint(), count);
    remote->AwaitParameters(std::chrono::minutes(1));
    ASSERT_EQ(remote->version(), 1u);
    for (int64_t i = 0; i < 30; ++i) {
      ASSERT_THAT(Act(*remote, first + i),
                  Pointwise(FloatNear(1e-6F),
                            MeanActions(first + i, count, BytesOf(1))));
    }
  };
  std::thread other([&] { run(50, 3); });
  run(0, 1);
  other.join();
  service.server.Stop();
  EXPECT_EQ(service.inference.metrics().requests, 60);
  EXPECT_EQ(service.inference.metrics().rows, 30 + 90);
  EXPECT_LE(service.inference.metrics().batches, 60);
}

// The server takes up what the learner publishes, and actors learn of it.
TEST_F(InferenceTest, FollowsTheLearner) {
  Service service(this, OwnAddress());
  const auto remote = MakeRemote(service.server.endpoint(), 2);
  EXPECT_THAT(Act(*remote, 0),
              Pointwise(FloatNear(1e-6F), MeanActions(0, 2, BytesOf(1))));
  EXPECT_EQ(remote->version(), 1u);
  version_ = 2;
  EXPECT_THAT(Act(*remote, 0),
              Pointwise(FloatNear(1e-6F), MeanActions(0, 2, BytesOf(2))));
  EXPECT_EQ(remote->version(), 2u);
  EXPECT_EQ(remote->agent_steps(), 200);
}

// An actor whose server dies waits for the next one.
TEST_F(InferenceTest, AnActorWaitsForANewServer) {
  std::optional<Service> service(std::in_place, this, OwnAddress());
  const std::string endpoint = service->server.endpoint();
  std::promise<void> has_acted, is_gone;
  std::vector<float> actions;
  std::thread actor([&] {
    const auto remote = MakeRemote(endpoint, 1);
    Act(*remote, 0);
    has_acted.set_value();
    is_gone.get_future().wait();
    actions = Act(*remote, 9);
  });
  has_acted.get_future().wait();
  service.reset();
  is_gone.set_value();
  served_ = 0;
  service.emplace(this, endpoint);
  actor.join();
  EXPECT_THAT(actions,
              Pointwise(FloatNear(1e-6F), MeanActions(9, 1, BytesOf(1))));
}

// Would catch an actor that asks at the address where its server was.
TEST_F(InferenceTest, AnActorFollowsAServerThatMoves) {
  std::optional<Service> service;
  Mutex mutex;
  std::string endpoint;
  std::atomic<int> num_looks = 0;
  std::promise<void> has_acted, is_gone;
  std::vector<float> actions;
  std::thread actor([&] {
    RemotePolicy remote(MakeTask(), {.find_server = [&] {
                          MutexLock lock(mutex);
                          ++num_looks;
                          return endpoint;
                        }});
    Act(remote, 0);
    has_acted.set_value();
    is_gone.get_future().wait();
    actions = Act(remote, 9);
  });
  // it asks while no address is known
  while (num_looks < 3) std::this_thread::yield();
  const auto serve = [&] {
    served_ = 0;
    service.emplace(this, OwnAddress());
    MutexLock lock(mutex);
    endpoint = service->server.endpoint();
  };
  serve();
  has_acted.get_future().wait();
  const std::string first = service->server.endpoint();
  service.reset();
  is_gone.set_value();
  serve();
  ASSERT_NE(service->server.endpoint(), first);
  actor.join();
  EXPECT_THAT(actions,
              Pointwise(FloatNear(1e-6F), MeanActions(9, 1, BytesOf(1))));
}

// Nothing holds up an actor that ends.
TEST_F(InferenceTest, AnActorThatEndsWaitsForNoServer) {
  std::atomic<bool> is_over = false;
  RemotePolicy remote(MakeTask(),
                      {.find_server = [] { return "tcp://127.0.0.1:1"; },
                       .is_over = [&is_over] { return is_over.load(); }});
  std::thread stop([&] { is_over = true; });
  EXPECT_THAT(Act(remote, 0), Each(0.0F));
  remote.AwaitParameters(std::chrono::minutes(5));
  EXPECT_FALSE(remote.version());
  stop.join();
}

TEST_F(InferenceTest, AnActorOfAnotherTaskIsRefused) {
  Service service(this, OwnAddress());
  RemotePolicy remote(MakeTask(/*observation=*/4), {.find_server = [&service] {
                        return service.server.endpoint();
                      }});
  EXPECT_THAT(
      MessageOf<CommError>(
          [&] { remote.AwaitParameters(std::chrono::minutes(1)); }),
      HasSubstr("the policy takes observations of 12 bytes and states of 0 "
                "numbers and returns actions of 2, but actor 'actor' has 16, 0 "
                "and 2; hint: give both the same task"));
  EXPECT_THAT(MessageOf<CommError>([&] { static_cast<void>(remote.Act(0)); }),
              HasSubstr("inference: 16 bytes and 0 numbers of a state for 1 "
                        "observations, expected 12 and 0; hint"));
}

TEST(InferenceProtocolTest, MessagesComeBackAsTheyWere) {
  const InferenceInfo info{12, 5, 2, true, 7, -1};
  EXPECT_EQ(rpc::DecodeMessage<InferenceInfo>(rpc::EncodeMessage(info)), info);
  const ActReply reply{3, 4, {0.5F, -0.5F}};
  EXPECT_EQ(rpc::DecodeMessage<ActReply>(rpc::EncodeMessage(reply)), reply);
  const std::vector<float> rows = {1.0F, 2.0F};
  const ActRequest request{
      {0.1F, 0.2F}, {3.0F, 4.0F}, std::as_bytes(std::span(rows))};
  const rpc::Message message = request.Encode();
  const ActRequest read = ActRequest::Decode(message);
  EXPECT_EQ(read.noise_scales, request.noise_scales);
  EXPECT_EQ(read.states, request.states);
  EXPECT_TRUE(std::ranges::equal(read.observations, request.observations));
  EXPECT_THROW(ActRequest::Decode(rpc::EncodeMessage(reply)),
               rpc::MalformedMessage);
  EXPECT_THROW(ActRequest::Decode(ActRequest{}.Encode()),
               rpc::MalformedMessage);
}

}  // namespace
}  // namespace replicant::actors
