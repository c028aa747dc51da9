#include "agents/observation_normalizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/nn/optimizers.h"
#include "engine/nn/single_replica.h"
#include "tests/agents/learning_specs.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::agents {
namespace {

using testing::GraphRunner;
using testing::MessageOf;
using testing::ToDoubles;
using V = std::vector<double>;

constexpr int64_t kRows = 5;
constexpr int64_t kSize = 3;

// Updates by batches of rows, and what becomes of a probe.
class Normalized {
 public:
  explicit Normalized(const ObservationsConfig& config)
      : normalizer_(runner_.graph(),
                    testing::LearningSpecOf(Shape({kSize}), 1).task,
                    DType::kF64, config) {
    TransitionBatch batch;
    const auto input = [&](const char* name, int64_t rows) {
      return runner_.Input(name, HostTensor(DType::kF64, Shape({rows, kSize})));
    };
    batch.observation = input("observation", kRows);
    const graph::Output probe = normalizer_(input("probe", 1));
    nn::SingleReplica replica(runner_.graph());
    const nn::StepCounter step = nn::AddStepCounter(runner_.graph());
    auto updates = normalizer_.Update(replica, batch, step.value);
    updates.push_back(step.advance);
    plan_ = runner_.Compile({.outputs = {probe}, .updates = updates});
  }

  // The probe, normalized by the statistics from before the update by `rows`.
  V Step(const V& rows, const V& probe) {
    std::ranges::copy(rows, plan_->input("observation").Span<double>().begin());
    std::ranges::copy(probe, plan_->input("probe").Span<double>().begin());
    plan_->Run();
    return ToDoubles(plan_->output(0));
  }
  V Get(const char* name) {
    return ToDoubles(runner_.store().Get(name).view());
  }

 private:
  GraphRunner runner_;
  ObservationNormalizer normalizer_;
  std::unique_ptr<runtime::Executor> plan_;
};

V RandomRows(RandomStream& random) {
  V rows(kRows * kSize);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = 100.0 * static_cast<double>(i % kSize) + random.Normal();
  }
  return rows;
}

// Mean and variance of column `c` of all `rows`.
std::pair<double, double> MomentsOf(const V& rows, size_t c) {
  double sum = 0.0, square = 0.0;
  const double count = static_cast<double>(rows.size()) / kSize;
  for (size_t i = c; i < rows.size(); i += kSize) sum += rows[i];
  for (size_t i = c; i < rows.size(); i += kSize) {
    square += std::pow(rows[i] - sum / count, 2);
  }
  return {sum / count, square / count};
}

TEST(ObservationNormalizerTest, HasTheMomentsOfAllRowsSoFar) {
  Normalized normalized({});
  RandomStream random(1, "rows");
  V all;
  for (int step = 0; step < 20; ++step) {
    const V rows = RandomRows(random);
    normalized.Step(rows, V(kSize));
    all.insert(all.end(), rows.begin(), rows.end());
    const V mean = normalized.Get("observations/mean");
    const V variance = normalized.Get("observations/variance");
    for (size_t c = 0; c < kSize; ++c) {
      const auto [wanted_mean, wanted_variance] = MomentsOf(all, c);
      // of the order of 2^-52 * 200^2 for each of the updates
      EXPECT_NEAR(mean[c], wanted_mean, 1e-10);
      EXPECT_NEAR(variance[c], wanted_variance, 1e-9);
    }
  }
}

TEST(ObservationNormalizerTest, ForgetsAfterMaxUpdates) {
  Normalized normalized({.max_updates = 4});
  const V zeros(kRows * kSize, 0.0), ones(kRows * kSize, 1.0);
  for (int step = 0; step < 10; ++step) normalized.Step(zeros, V(kSize));
  for (int step = 0; step < 3; ++step) normalized.Step(ones, V(kSize));
  // each update keeps three quarters
  const double mean = 1.0 - std::pow(0.75, 3);
  for (const double x : normalized.Get("observations/mean")) {
    EXPECT_NEAR(x, mean, 1e-15);
  }
  for (const double x : normalized.Get("observations/variance")) {
    EXPECT_NEAR(x, mean * (1.0 - mean), 1e-15);
  }
}

TEST(ObservationNormalizerTest, NormalizesByTheStatisticsFromBeforeTheUpdate) {
  Normalized normalized({.min_deviation = 0.5, .clip = 3.0});
  V rows;
  for (size_t row = 0; row < kRows; ++row) {
    const double sign = row % 2 == 0 ? 1.0 : -1.0;
    rows.insert(rows.end(), {7.0, 10.0 * sign, 0.0});
  }
  // raw before the first update, but for the clip
  EXPECT_EQ(normalized.Step(rows, {1.0, -20.0, 2.5}), (V{1.0, -3.0, 2.5}));
  const V after = normalized.Step(rows, {7.5, 2.0, 100.0});
  // column 0 has no spread, so the floor divides
  EXPECT_NEAR(after[0], (7.5 - 7.0) / 0.5, 1e-12);
  // mean 2, mean square 100
  EXPECT_NEAR(after[1], 0.0, 1e-12);
  EXPECT_EQ(after[2], 3.0);
}

TEST(ObservationNormalizerTest, KeepsPixelsAndTakesTheStatesOfWindows) {
  GraphRunner runner;
  TaskSpec task;
  task.has_pixels = true;
  task.state_size = 2;
  const ObservationNormalizer normalize(runner.graph(), task, DType::kF64,
                                        {.clip = 2.0});
  TransitionBatch batch;
  const auto states = [&](const char* name, const Shape& shape) {
    HostTensor tensor(DType::kF64, shape);
    std::ranges::fill(tensor.MutableSpan<double>(), 5.0);
    return runner.Input(name, std::move(tensor));
  };
  batch.observation =
      runner.Input("observation", HostTensor(DType::kU8, Shape({1, 4, 4, 3})));
  batch.state = states("state", Shape({1, 2}));
  batch.window.emplace();
  batch.window->state = states("window_state", Shape({1, 3, 2}));
  const TransitionBatch normalized = normalize(batch);
  EXPECT_EQ(normalized.observation.node, batch.observation.node);
  EXPECT_EQ(runner.Eval(normalized.state), V(2, 2.0));
  EXPECT_EQ(runner.Eval(normalized.window->state), V(6, 2.0));
}

TEST(ObservationNormalizerTest, RefusesPixelsAlone) {
  EXPECT_EQ(MessageOf<ConfigError>([] {
              ObservationNormalizer::Check(
                  testing::LearningSpecOf(Shape({9, 9, 3}), 1).task);
            }),
            "agent.observations.normalize: running, but observations have "
            "pixels alone; hint: task.pixels.state: true, or normalize: none");
}

}  // namespace
}  // namespace replicant::agents
