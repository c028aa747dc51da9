#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "agents/d4pg/losses.h"
#include "agents/d4pg/update.h"
#include "agents/images.h"
#include "base/rng.h"
#include "engine/graph/gradients.h"
#include "engine/graph/ops/image.h"
#include "engine/nn/single_replica.h"
#include "tests/agents/learning_specs.h"
#include "tests/support/depends_on.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::agents::d4pg {
namespace {

using testing::DependsOn;
using testing::GraphRunner;
using testing::MessageOf;
using testing::ToDoubles;
using testing::Values;
using V = std::vector<double>;

constexpr int64_t kBatch = 6;
constexpr int64_t kAtoms = 11;
constexpr Support kSupport = {.v_min = 0.0, .v_max = 10.0, .num_atoms = kAtoms};
constexpr CallSite kSite{"learner.cc", 5};

D4pgConfig SmallConfig() {
  D4pgConfig config;
  config.networks = {
      .encoder = {.kind = EncoderKind::kCustom,
                  .channels = {4},
                  .kernels = {3},
                  .strides = {2}},
      .embedding_size = 5,
      .policy_hidden_sizes = {8, 6},
      .critic_hidden_sizes = {8, 6},
      .policy_last_layer_scale = 1.0,
      .critic_last_layer_scale = 1.0,
  };
  config.policy_optimizer.learning_rate = 1e-3;
  config.critic_optimizer.learning_rate = 1e-2;
  return config;
}

const LearningSpec kSpec = [] {
  LearningSpec spec = testing::LearningSpecOf(Shape({9, 9, 3}), 2);
  spec.dtype = DType::kF64;
  return spec;
}();

HostTensor Pixels(uint64_t seed) {
  HostTensor pixels(DType::kU8, Shape({kBatch, 9, 9, 3}));
  RandomStream random(seed, "pixels");
  for (uint8_t& x : pixels.MutableSpan<uint8_t>()) {
    x = static_cast<uint8_t>(random.UniformInt(256));
  }
  return pixels;
}

// A batch of the runner's inputs.
TransitionBatch FixedBatch(GraphRunner& runner) {
  const auto uniform = [&](const std::string& name, const Shape& shape,
                           double low, double high, uint64_t seed) {
    return runner.Input(
        name, testing::RandomUniform(DType::kF64, shape, low, high, seed));
  };
  return {.observation = runner.Input("observation", Pixels(1)),
          .action = uniform("action", Shape({kBatch, 2}), -1, 1, 2),
          .reward = uniform("reward", Shape({kBatch}), 0, 3, 3),
          .discount = uniform("discount", Shape({kBatch}), 0.5, 0.9, 4),
          .next_observation = runner.Input("next_observation", Pixels(5)),
          .importance_weight = uniform("weight", Shape({kBatch}), 0.1, 2, 6)};
}

void Start(GraphRunner& runner, const D4pgConfig& config) {
  Graph graph;
  const std::vector<Output> updates = BuildStart(graph, config, kSpec, kAtoms);
  runtime::Executor plan(graph, {.updates = updates}, runner.store());
  plan.Run();
}

Update BuildAlone(Graph& graph, const D4pgConfig& config,
                  const TransitionBatch& batch) {
  nn::SingleReplica replica(graph);
  return BuildUpdate(replica, config, kSpec, kSupport, batch);
}

TEST(D4pgUpdateTest, GradientsStopWhereTheyShould) {
  GraphRunner runner;
  Graph& graph = runner.graph();
  D4pgConfig config = SmallConfig();
  config.target.has_encoder = false;
  const Update update = BuildAlone(graph, config, FixedBatch(runner));
  EXPECT_TRUE(DependsOn(update.critic_loss, "encoder/convnet/0/weight"));
  EXPECT_TRUE(DependsOn(update.critic_loss, "critic/head/0/weight"));
  EXPECT_FALSE(DependsOn(update.critic_loss, "policy/head/0/weight"));
  EXPECT_FALSE(DependsOn(update.critic_loss, "target/critic/head/0/weight"));
  EXPECT_FALSE(DependsOn(update.critic_loss, "target/policy/head/0/weight"));
  EXPECT_TRUE(DependsOn(update.policy_loss, "policy/head/0/weight"));
  EXPECT_FALSE(DependsOn(update.policy_loss, "encoder/convnet/0/weight"));
  // the policy's loss depends on the critic, but does not train it
  for (const VariableId v : update.policy.variables) {
    EXPECT_TRUE(graph.variable(v).name.starts_with("policy/"));
  }
  for (const VariableId v : update.critic.variables) {
    EXPECT_FALSE(graph.variable(v).name.starts_with("policy/"));
  }
  EXPECT_EQ(update.critic.gradients.size(), update.critic.variables.size());
}

TEST(D4pgUpdateTest, LearnsAFixedBatchAndMovesTheTargets) {
  GraphRunner runner;
  D4pgConfig config = SmallConfig();
  config.target.rate = 0.25;
  const Update update = BuildAlone(runner.graph(), config, FixedBatch(runner));
  const auto plan =
      runner.Compile({.outputs = {update.critic_loss, update.policy_loss,
                                  update.priority, update.value},
                      .updates = update.updates});
  Start(runner, config);
  const std::string name = "critic/head/0/weight";
  const auto get = [&](const std::string& n) {
    return ToDoubles(runner.store().Get(n).view());
  };
  const V before = get(name);
  ASSERT_EQ(get("target/" + name), before);

  plan->Run();
  const double first_loss = plan->output(0).Span<double>()[0];
  const V after = get(name);
  const V target = get("target/" + name);
  EXPECT_NE(after, before);
  for (size_t i = 0; i < target.size(); ++i) {
    EXPECT_NEAR(target[i], 0.75 * before[i] + 0.25 * after[i], 1e-12);
  }
  EXPECT_EQ(runner.store().Get("step").Span<int64_t>()[0], 1);

  for (int i = 0; i < 100; ++i) plan->Run();
  // half of it was ignorance; the rest is the entropy of the targets
  EXPECT_LT(plan->output(0).Span<double>()[0], 0.8 * first_loss);
  // the importance weights are at most 1, so the priorities are larger
  const V priority = ToDoubles(plan->output(2));
  double mean = 0.0;
  for (const double p : priority) mean += p / kBatch;
  EXPECT_GT(mean, plan->output(0).Span<double>()[0]);
}

TEST(CriticLossTest, GivesPrioritiesByThreeRules) {
  GraphRunner runner;
  const auto input = [&](const std::string& name, const Shape& shape,
                         const V& values) {
    return runner.Input(name, Values(DType::kF64, shape, values));
  };
  // the value of uniform logits is 2, the targets are certain: 2, 2.25 and 4
  const CriticLossInputs inputs{
      .logits = input("logits", Shape({3, 3}), V(9, 0.0)),
      .next_probabilities =
          input("next", Shape({3, 3}), {1, 0, 0, 1, 0, 0, 1, 0, 0}),
      .reward = input("reward", Shape({3}), {2.0, 2.25, 4.0}),
      .discount = input("discount", Shape({3}), {1.0, 1.0, 1.0}),
      .weight = input("weight", Shape({3}), {1.0, 0.5, 0.25})};
  const auto priority = [&](Priority rule) {
    return runner.Eval(
        CriticLoss(inputs, {.v_min = 0.0, .v_max = 4.0, .num_atoms = 3}, rule)
            .priority);
  };
  const auto near = [](double x) { return ::testing::DoubleNear(x, 1e-12); };
  EXPECT_THAT(priority(Priority::kCrossEntropy),
              ::testing::Each(near(std::log(3.0))));
  EXPECT_THAT(priority(Priority::kAbsoluteTdError),
              ::testing::ElementsAre(near(0.0), near(0.25), near(2.0)));
  EXPECT_THAT(priority(Priority::kLap),
              ::testing::ElementsAre(near(1.0), near(1.0), near(2.0)));
}

// Mean of the first 1 / (1 - decay) values, exponential from then on.
TEST(D4pgUpdateTest, AveragesTheNetworksThatAct) {
  GraphRunner runner;
  D4pgConfig config = SmallConfig();
  config.average_decay = 0.75;
  const Update update = BuildAlone(runner.graph(), config, FixedBatch(runner));
  const auto plan = runner.Compile({.updates = update.updates});
  Start(runner, config);
  const auto get = [&](const std::string& name) {
    return ToDoubles(runner.store().Get(name).view());
  };
  for (const std::string name :
       {"encoder/convnet/0/weight", "policy/head/0/weight"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(get("average/" + name), get(name));
  }
  EXPECT_FALSE(runner.store().Has("average/critic/head/0/weight"));
  const std::string name = "policy/head/0/weight";
  V average(get(name).size(), 0.0);
  for (const double rate : {1.0, 1.0 / 2, 1.0 / 3, 1.0 / 4, 1.0 / 4}) {
    plan->Run();
    const V now = get(name);
    const V got = get("average/" + name);
    for (size_t i = 0; i < now.size(); ++i) {
      average[i] += rate * (now[i] - average[i]);
      EXPECT_NEAR(got[i], average[i], 1e-12);
    }
  }
  EXPECT_NE(get("average/" + name), get(name));
}

TEST(D4pgUpdateTest, PeriodicCopyWaitsForItsPeriod) {
  GraphRunner runner;
  D4pgConfig config = SmallConfig();
  config.target.update = TargetUpdate::kPeriodicCopy;
  config.target.period = 3;
  const Update update = BuildAlone(runner.graph(), config, FixedBatch(runner));
  const auto plan = runner.Compile({.updates = update.updates});
  Start(runner, config);
  const auto get = [&](const std::string& name) {
    return ToDoubles(runner.store().Get(name).view());
  };
  const V first = get("policy/head/0/weight");
  for (int i = 1; i <= 2; ++i) {
    plan->Run();
    EXPECT_EQ(get("target/policy/head/0/weight"), first);
  }
  plan->Run();
  EXPECT_NE(get("target/policy/head/0/weight"), first);
  EXPECT_EQ(get("target/policy/head/0/weight"), get("policy/head/0/weight"));
}

// The update with random shifts is the one without, on frames that were moved
// by the offsets that it tells.
TEST(D4pgUpdateTest, RandomShiftMovesBothStacksByWhatItTells) {
  D4pgConfig config = SmallConfig();
  config.random_shift = 2;
  GraphRunner shifting(/*backend=*/"reference", /*seed=*/3);
  const Update with =
      BuildAlone(shifting.graph(), config, FixedBatch(shifting));
  ASSERT_TRUE(with.shift.is_valid());
  const auto plan = shifting.Compile(
      {.outputs = {with.critic_loss, with.shift, with.next_shift}});
  plan->Run();
  const V offsets = ToDoubles(plan->output(1));
  const V next_offsets = ToDoubles(plan->output(2));
  EXPECT_NE(offsets, next_offsets);
  EXPECT_NE(offsets, V(offsets.size(), offsets[0]));
  for (const double x : offsets) EXPECT_LE(std::fabs(x), 2.0);

  config.random_shift = 0;
  GraphRunner plain(/*backend=*/"reference", /*seed=*/3);
  TransitionBatch batch = FixedBatch(plain);
  const auto shifted = [&](Output frames, const std::string& name,
                           const V& by) {
    return graph::RandomShift(
        frames, plain.Input(name, testing::Values(DType::kI32,
                                                  Shape({kBatch, 2}), by)));
  };
  batch.observation = shifted(batch.observation, "by", offsets);
  batch.next_observation =
      shifted(batch.next_observation, "next_by", next_offsets);
  const Update without = BuildAlone(plain.graph(), config, batch);
  EXPECT_EQ(plain.Eval(without.critic_loss)[0],
            plan->output(0).Span<double>()[0]);
}

// Every image of an observation is shifted by its own two offsets.
TEST(D4pgUpdateTest, RandomShiftMovesEachImageByItsOwn) {
  LearningSpec spec = kSpec;
  spec.task.observation = Shape({9 * 9 * 3 + 8 * 8 * 3});
  spec.task.images = {{"pixels/a", Shape({9, 9, 3})},
                      {"pixels/b", Shape({8, 8, 3})}};
  D4pgConfig config = SmallConfig();
  // a batch of images `a` and `b`, shifted by two offsets each unless none
  const auto build = [&](GraphRunner& runner, const V& by, const V& next_by) {
    TransitionBatch batch = FixedBatch(runner);
    const auto joined = [&](const std::string& name, uint64_t seed,
                            const V& offsets) {
      std::vector<Output> images;
      for (size_t i = 0; i < 2; ++i) {
        const Shape& shape = spec.task.images[i].shape;
        HostTensor pixels(DType::kU8,
                          Shape({kBatch, shape[0], shape[1], shape[2]}));
        RandomStream random(seed + i, "pixels");
        for (uint8_t& x : pixels.MutableSpan<uint8_t>()) {
          x = static_cast<uint8_t>(random.UniformInt(256));
        }
        const std::string input = name + std::to_string(i);
        images.push_back(runner.Input(input, std::move(pixels)));
        if (offsets.empty()) continue;
        V own;
        for (size_t row = 0; row < kBatch; ++row) {
          own.push_back(offsets[4 * row + 2 * i]);
          own.push_back(offsets[4 * row + 2 * i + 1]);
        }
        images[i] = graph::RandomShift(
            images[i], runner.Input(input + "_by",
                                    testing::Values(DType::kI32,
                                                    Shape({kBatch, 2}), own)));
      }
      return JoinImages(images);
    };
    batch.observation = joined("now", 10, by);
    batch.next_observation = joined("next", 20, next_by);
    nn::SingleReplica replica(runner.graph());
    return BuildUpdate(replica, config, spec, kSupport, batch);
  };
  config.random_shift = 2;
  GraphRunner shifting(/*backend=*/"reference", /*seed=*/3);
  const Update with = build(shifting, {}, {});
  const auto plan = shifting.Compile(
      {.outputs = {with.critic_loss, with.shift, with.next_shift}});
  plan->Run();
  const V by = ToDoubles(plan->output(1)), next_by = ToDoubles(plan->output(2));
  ASSERT_EQ(by.size(), 4U * kBatch);
  int num_different = 0;
  for (size_t i = 0; i < by.size(); i += 4) {
    num_different += by[i] != by[i + 2] || by[i + 1] != by[i + 3];
  }
  EXPECT_GT(num_different, 0);
  config.random_shift = 0;
  GraphRunner plain(/*backend=*/"reference", /*seed=*/3);
  const Update without = build(plain, by, next_by);
  EXPECT_EQ(plain.Eval(without.critic_loss)[0],
            plan->output(0).Span<double>()[0]);
}

// A replica that looks at what it is to reduce.
class WatchingReplica : public nn::SingleReplica {
 public:
  using SingleReplica::SingleReplica;

  size_t num_gradients = 0;
  int num_maxima = 0;

 private:
  Output DoMeanGradient(Output gradient, nn::CallSite /*site*/) override {
    ++num_gradients;
    return gradient;
  }
  Output DoAllReduce(Output largest, ReduceOp op,
                     nn::CallSite /*site*/) override {
    EXPECT_EQ(op, ReduceOp::kMax);
    EXPECT_EQ(largest.shape(), Shape({}));
    ++num_maxima;
    return largest;
  }
};

// Replicas reduce all gradients, and the largest importance weight.
TEST(D4pgUpdateTest, ReplicasSeeGradientsAndLargestWeight) {
  GraphRunner runner;
  WatchingReplica replica(runner.graph());
  const Update update =
      BuildUpdate(replica, SmallConfig(), kSpec, kSupport, FixedBatch(runner));
  EXPECT_EQ(replica.num_maxima, 1);
  EXPECT_EQ(replica.num_gradients,
            update.critic.gradients.size() + update.policy.gradients.size());
}

TEST(D4pgUpdateTest, RefusesABatchOfOtherShapes) {
  GraphRunner runner;
  TransitionBatch batch = FixedBatch(runner);
  batch.reward = runner.graph().Input("few", DType::kF64, Shape({kBatch - 1}));
  EXPECT_EQ(MessageOf<ShapeError>([&] {
              nn::SingleReplica replica(runner.graph());
              BuildUpdate(replica, SmallConfig(), kSpec, kSupport, batch,
                          kSite);
            }),
            "learner.cc:5: CategoricalProjection 'CategoricalProjection': want "
            "probabilities [B,K], K >= 2, and reward, discount [B] of one "
            "floating dtype, got f64[6,11], f64[5], f64[6]");
}

}  // namespace
}  // namespace replicant::agents::d4pg
