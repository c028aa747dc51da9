#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "agents/d4pg/return_range.h"
#include "engine/nn/optimizers.h"
#include "engine/nn/single_replica.h"
#include "tests/agents/learning_specs.h"
#include "tests/support/graph_runner.h"

namespace replicant::agents::d4pg {
namespace {

using testing::GraphRunner;
using testing::ToDoubles;
using V = std::vector<double>;

constexpr int64_t kRows = 4;
// of the spec, so that the atoms are in [0, 10]
constexpr double kDiscount = 0.9;

class Ranged {
 public:
  explicit Ranged(const DistributionConfig& config) {
    LearningSpec spec = testing::LearningSpecOf(Shape({1}), 1);
    spec.discount = kDiscount;
    spec.dtype = DType::kF64;
    ReturnRange range(runner_.graph(), config, spec);
    TransitionBatch batch;
    const auto input = [&](const char* name) {
      return runner_.Input(name, HostTensor(DType::kF64, Shape({kRows})));
    };
    batch.reward = input("reward");
    batch.discount = input("discount");
    const Output mapped = range.ToAtoms(batch.reward, batch.discount);
    const Output value = input("value");
    std::vector<Output> outputs = {mapped, range.ToReturns(value),
                                   range.ToDifferences(value)};
    for (const auto& [name, scalar] : range.Scalars()) {
      outputs.push_back(scalar);
    }
    nn::SingleReplica replica(runner_.graph());
    const nn::StepCounter step = nn::AddStepCounter(runner_.graph());
    auto updates =
        range.Update(replica, batch, step.value, config.range_updates);
    updates.push_back(step.advance);
    plan_ = runner_.Compile({.outputs = outputs, .updates = updates});
  }

  void Step(const V& reward, const V& discount, const V& value = V(kRows)) {
    for (const auto& [name, values] :
         {std::pair{"reward", &reward}, std::pair{"discount", &discount},
          std::pair{"value", &value}}) {
      std::ranges::copy(*values, plan_->input(name).Span<double>().begin());
    }
    plan_->Run();
  }
  // Of the last step, before its update.
  V mapped() const { return ToDoubles(plan_->output(0)); }
  V returns() const { return ToDoubles(plan_->output(1)); }
  V differences() const { return ToDoubles(plan_->output(2)); }
  double v_min() const { return ToDoubles(plan_->output(3))[0]; }
  double v_max() const { return ToDoubles(plan_->output(4))[0]; }

 private:
  GraphRunner runner_;
  std::unique_ptr<runtime::Executor> plan_;
};

const V kGoOn(kRows, kDiscount);

TEST(ReturnRangeTest, StartsAsTheRangeOfUnitRewards) {
  Ranged ranged({});
  ranged.Step({0.0, 0.5, 1.0, 1.0}, {0.9, 0.9, 0.9, 0.0});
  EXPECT_NEAR(ranged.v_min(), 0.0, 1e-12);
  EXPECT_NEAR(ranged.v_max(), 10.0, 1e-12);
  const V mapped = ranged.mapped();
  for (const auto& [i, wanted] :
       {std::pair<size_t, double>{0, 0.0}, {1, 0.5}, {2, 1.0}, {3, 1.0}}) {
    EXPECT_NEAR(mapped[i], wanted, 1e-12);
  }
}

TEST(ReturnRangeTest, IsTheRootMeanSquareOfLastingRewardsOfEachSign) {
  Ranged ranged({.range_deviations = 2.0});
  // lasting: 300, -40, 0, and 5 once, since the episode ends
  const V reward = {30.0, -4.0, 0.0, 5.0}, discount = {0.9, 0.9, 0.9, 0.0};
  ranged.Step(reward, discount);
  ranged.Step(reward, discount);
  EXPECT_NEAR(ranged.v_max(), 2.0 * std::sqrt((300.0 * 300.0 + 25.0) / 4.0),
              1e-9);
  EXPECT_NEAR(ranged.v_min(), -2.0 * std::sqrt(40.0 * 40.0 / 4.0), 1e-9);
  // a larger batch counts by its share of the two, then of the last three
  ranged.Step(V(kRows, 0.0), kGoOn);
  ranged.Step(V(kRows, 0.0), kGoOn);
  EXPECT_NEAR(ranged.v_min(), -2.0 * std::sqrt(400.0 * 2.0 / 3.0), 1e-9);
}

// R + D G lies among the atoms where G's image says, for every return G.
TEST(ReturnRangeTest, MapsReturnsAndBack) {
  Ranged ranged({.range_deviations = 1.5});
  ranged.Step({30.0, -4.0, 0.0, 5.0}, {0.9, 0.9, 0.729, 0.0});
  const V reward = {17.0, -3.0, 0.25, -80.0};
  const V discount = {0.9, 0.729, 0.9, 0.0};
  const V atoms = {0.0, 10.0, 3.5, 6.0};
  ranged.Step(reward, discount, atoms);
  const V mapped = ranged.mapped(), returns = ranged.returns();
  const double length = ranged.v_max() - ranged.v_min();
  for (size_t b = 0; b < kRows; ++b) {
    const double target = reward[b] + discount[b] * returns[b];
    const double wanted = (target - ranged.v_min()) / length * 10.0;
    EXPECT_NEAR(mapped[b] + discount[b] * atoms[b], wanted, 1e-9);
    EXPECT_NEAR(ranged.differences()[b], atoms[b] / 10.0 * length, 1e-9);
  }
  EXPECT_NEAR(returns[0], ranged.v_min(), 1e-9);
  EXPECT_NEAR(returns[1], ranged.v_max(), 1e-9);
}

TEST(ReturnRangeTest, TakesRewardsThatAreAllZero) {
  Ranged ranged({});
  for (int step = 0; step < 3; ++step) ranged.Step(V(kRows, 0.0), kGoOn);
  EXPECT_EQ(ranged.mapped(), V(kRows, 0.0));
  EXPECT_EQ(ranged.v_max(), 0.0);
}

// The same rewards times any factor are the same problem to the critic.
TEST(ReturnRangeTest, DoesNotDependOnTheUnitOfRewards) {
  const V reward = {3.0, -0.5, 1.0, 2.0}, discount = {0.9, 0.9, 0.9, 0.0};
  const auto mapped_of = [&](double unit) {
    Ranged ranged({});
    V scaled = reward;
    for (double& r : scaled) r *= unit;
    for (int step = 0; step < 5; ++step) ranged.Step(scaled, discount);
    return ranged.mapped();
  };
  const V wanted = mapped_of(1.0);
  for (const double unit : {1e-4, 1e4}) {
    const V got = mapped_of(unit);
    for (size_t b = 0; b < kRows; ++b) EXPECT_NEAR(got[b], wanted[b], 1e-9);
  }
}

}  // namespace
}  // namespace replicant::agents::d4pg
