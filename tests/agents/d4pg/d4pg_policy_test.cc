#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "agents/d4pg/agent.h"
#include "agents/d4pg/policy.h"
#include "engine/graph/ops/reduce.h"
#include "tests/agents/learning_specs.h"
#include "tests/support/depends_on.h"
#include "tests/support/graph_runner.h"

namespace replicant::agents::d4pg {
namespace {

using V = std::vector<double>;

constexpr int64_t kEnvironments = 64;
constexpr int64_t kActions = 3;

const D4pgConfig kConfig = {.networks = {.policy_hidden_sizes = {8, 8}}};
const LearningSpec kSpec = testing::LearningSpecOf(Shape({4}), kActions);

// Actions on random observations.
V Act(const PolicyOptions& options, double noise_scale, int64_t step) {
  const auto backend = kernels::MakeBackend("reference");
  runtime::VariableStore store(*backend, /*seed=*/1);
  Graph graph(/*seed=*/7);
  const Output action = BuildPolicy(graph, kConfig, kSpec, options);
  runtime::Executor plan(graph, {.outputs = {action}}, store);
  const HostTensor x = testing::RandomNormal(
      DType::kF32, Shape({options.num_environments, 4}), 3);
  std::ranges::copy(x.Span<float>(),
                    plan.input("observation").Span<float>().begin());
  if (options.has_noise) {
    std::ranges::fill(plan.input("noise_scale").Span<float>(),
                      static_cast<float>(noise_scale));
    plan.input("step").Span<int64_t>()[0] = step;
  }
  plan.Run();
  return testing::ToDoubles(plan.output(0));
}

TEST(PolicyTest, NoiseOfScaleZeroIsNone) {
  EXPECT_EQ(Act({.num_environments = kEnvironments}, 0.0, 1),
            Act({.num_environments = kEnvironments, .has_noise = false}, 0, 0));
}

TEST(PolicyTest, NoiseHasItsScaleAndIsAnotherEachStep) {
  const PolicyOptions options{.num_environments = kEnvironments};
  const V mean = Act(options, 0.0, 1);
  const V first = Act(options, 0.1, 1);
  const V second = Act(options, 0.1, 2);
  EXPECT_EQ(first, Act(options, 0.1, 1));
  double square = 0.0, product = 0.0;
  for (size_t i = 0; i < mean.size(); ++i) {
    square += std::pow(first[i] - mean[i], 2);
    product += (first[i] - mean[i]) * (second[i] - mean[i]);
  }
  // over n = 192 draws: standard deviation of the mean square 0.01 *
  // sqrt(2 / n), of the mean product 0.01 / sqrt(n); five of each
  const auto n = static_cast<double>(mean.size());
  EXPECT_NEAR(square / n, 0.01, 5 * 0.01 * std::sqrt(2.0 / n));
  EXPECT_NEAR(product / n, 0.0, 5 * 0.01 / std::sqrt(n));
}

TEST(PolicyTest, ActionsStayInTheirRange) {
  int64_t on_a_bound = 0;
  for (const double a : Act({.num_environments = kEnvironments}, 5.0, 1)) {
    EXPECT_LE(std::fabs(a), 1.0);
    on_a_bound += std::fabs(a) == 1.0 ? 1 : 0;
  }
  EXPECT_GT(on_a_bound, kEnvironments);
}

// All that explorers and evaluators read, and nothing else, is published, and
// each has variables for all of it.
TEST(PolicyTest, AnAverageIsEvaluatedAndMayExplore) {
  const std::string weight = "policy/head/0/weight";
  struct Case {
    double decay;
    bool explores;
    std::string explorer;
    std::string evaluated;
  };
  for (const Case& c :
       {Case{0.0, false, weight, weight},
        Case{0.99, false, weight, "average/" + weight},
        Case{0.99, true, "average/" + weight, "average/" + weight}}) {
    SCOPED_TRACE(fmt::format("{} {}", c.decay, c.explores));
    D4pgConfig config = kConfig;
    config.average_decay = c.decay;
    config.has_average_explorers = c.explores;
    const std::shared_ptr<const Agent> agent = MakeAgent(config);
    const std::set<std::string> published = {c.explorer, c.evaluated};
    for (const auto& [has_noise, is_evaluated] :
         {std::pair(true, false), std::pair(true, true),
          std::pair(false, false)}) {
      Graph graph;
      const Output action =
          BuildPolicy(graph, config, kSpec,
                      {.has_noise = has_noise, .is_evaluated = is_evaluated});
      const std::string& acting =
          has_noise && !is_evaluated ? c.explorer : c.evaluated;
      std::set<std::string> weights;
      for (const graph::VariableSpec& variable : graph.variables()) {
        EXPECT_TRUE(agent->IsOfPolicy(variable.name)) << variable.name;
        if (variable.name.ends_with(weight)) weights.insert(variable.name);
      }
      EXPECT_EQ(weights, published);
      const Output sum = graph::ReduceSum(action);
      for (const std::string& name : published) {
        EXPECT_EQ(testing::DependsOn(sum, name), name == acting) << name;
      }
    }
    EXPECT_EQ(agent->IsOfPolicy(weight), published.contains(weight));
    EXPECT_FALSE(agent->IsOfPolicy("average/critic/head/0/weight"));
    EXPECT_FALSE(agent->IsOfPolicy("average"));
    EXPECT_FALSE(agent->IsOfPolicy("target/policy/head/0/weight"));
  }
}

// Two actors of one seed explore differently, and as one actor of both would.
TEST(PolicyTest, NoiseBelongsToTheGlobalEnvironment) {
  const V all = Act({.num_environments = 4}, 0.3, 9);
  const V mean = Act({.num_environments = 4}, 0.0, 9);
  const V second = Act({.num_environments = 2, .first_environment = 2}, 0.3, 9);
  const V second_mean =
      Act({.num_environments = 2, .first_environment = 2}, 0.0, 9);
  for (size_t i = 0; i < second.size(); ++i) {
    EXPECT_NEAR(second[i] - second_mean[i],
                all[2 * kActions + i] - mean[2 * kActions + i], 1e-6);
  }
}

}  // namespace
}  // namespace replicant::agents::d4pg
