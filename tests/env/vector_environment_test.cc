#include "env/vector_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "env/wrappers.h"
#include "tests/env/small_task.h"

namespace replicant::env {
namespace {

using replicant::testing::MessageOf;

constexpr int kBatch = 5;
constexpr int kStateSize = 4;
constexpr int kActionSize = 2;

// An environment with pixels: its wrapper writes the position into them.
class WithPixels : public EnvironmentWrapper {
 public:
  explicit WithPixels(std::unique_ptr<Environment> environment)
      : EnvironmentWrapper(std::move(environment)),
        spec_(inner().observation_spec()) {
    spec_.arrays.push_back(
        {.name = "pixels", .shape = Shape({1, 1, 3}), .dtype = DType::kU8});
  }
  const ObservationSpec& observation_spec() const override { return spec_; }
  TimeStep Reset(const ObservationBuffer& out) override {
    const TimeStep step = inner().Reset({.state = out.state});
    Draw(out);
    return step;
  }
  TimeStep Step(std::span<const double> action,
                const ObservationBuffer& out) override {
    const TimeStep step = inner().Step(action, {.state = out.state});
    Draw(out);
    return step;
  }
  void Observe(const ObservationBuffer& out) override {
    inner().Observe({.state = out.state});
    Draw(out);
  }

 private:
  void Draw(const ObservationBuffer& out) {
    for (uint8_t& value : out.pixels) {
      value = static_cast<uint8_t>(100.0 * (1.0 + physics().qpos()[0]));
    }
  }
  ObservationSpec spec_;
};

// A device that fails from the third step on.
class Failing : public EnvironmentWrapper {
 public:
  using EnvironmentWrapper::EnvironmentWrapper;
  TimeStep Step(std::span<const double> action,
                const ObservationBuffer& out) override {
    if (++steps_ == 3) throw DeviceError("no picture");
    return inner().Step(action, out);
  }

 private:
  int steps_ = 0;
};

class VectorEnvironmentTest : public ::testing::Test {
 protected:
  std::unique_ptr<Environment> MakeOne(int64_t index) {
    return MakeEnvironment(definition_, {.seed = 3, .index = index});
  }
  std::vector<std::unique_ptr<Environment>> MakeAll() {
    std::vector<std::unique_ptr<Environment>> all;
    all.reserve(kBatch);
    for (int i = 0; i < kBatch; ++i) all.push_back(MakeOne(i));
    return all;
  }
  std::vector<double> Actions(int t) const {
    std::vector<double> actions(kBatch * kActionSize);
    for (size_t i = 0; i < actions.size(); ++i) {
      actions[i] = std::sin(t + 0.7 * static_cast<double>(i));
    }
    return actions;
  }

  TemporaryFolder folder_;
  const TaskDefinition definition_ = testing::DefineSmallTask(folder_);
  std::vector<double> state_ = std::vector<double>(kBatch * kStateSize);
  std::vector<TimeStep> steps_ = std::vector<TimeStep>(kBatch);
  const BatchBuffer out_{.state = state_, .steps = steps_};
};

TEST_F(VectorEnvironmentTest, EqualsSingleEnvironmentsForAnyNumberOfThreads) {
  for (const int threads : {0, 1, 2, 7}) {
    SCOPED_TRACE(threads);
    VectorEnvironment batch(MakeAll(), {.threads = threads});
    auto single = MakeAll();
    batch.Reset(out_);
    std::vector<double> state(kStateSize);
    for (auto& environment : single) environment->Reset({.state = state});
    // over the ends of episodes, which are 10 steps long
    for (int t = 0; t < 25; ++t) {
      const std::vector<double> actions = Actions(t);
      batch.Step(actions, out_);
      for (size_t i = 0; i < kBatch; ++i) {
        const TimeStep step = single[i]->Step(
            std::span(actions).subspan(i * kActionSize, kActionSize),
            {.state = state});
        EXPECT_EQ(steps_[i].step_type, step.step_type);
        EXPECT_EQ(steps_[i].reward, step.reward);
        EXPECT_TRUE(std::equal(state.begin(), state.end(),
                               state_.begin() + static_cast<int>(i) * 4));
      }
    }
    EXPECT_EQ(batch.counters().episodes, 3 * kBatch);
    EXPECT_EQ(batch.counters().divergences, 0);
  }
}

TEST_F(VectorEnvironmentTest, HalvesTakeTurnsAndGiveTheSameNumbers) {
  VectorEnvironment whole(MakeAll(), {.threads = 0});
  VectorEnvironment halves(MakeAll(), {.threads = 2});
  std::vector<double> state(state_.size());
  std::vector<TimeStep> steps(kBatch);
  const BatchBuffer out{.state = state, .steps = steps};
  whole.Reset(out_);
  halves.Reset(out);

  const std::vector<int> first = {0, 3};
  const std::vector<int> second = {4, 1, 2};
  const auto rows = [](const std::vector<double>& all,
                       const std::vector<int>& ids) {
    std::vector<double> some;
    for (const int id : ids) {
      some.push_back(all[static_cast<size_t>(id) * 2]);
      some.push_back(all[static_cast<size_t>(id) * 2 + 1]);
    }
    return some;
  };
  for (int t = 0; t < 15; ++t) {
    const std::vector<double> actions = Actions(t);
    whole.Step(actions, out_);
    halves.Send(first, rows(actions, first), out);
    halves.Send(second, rows(actions, second), out);
    EXPECT_EQ(halves.num_under_way(), kBatch);
    std::vector<int> done(2);
    halves.Receive(done);
    std::vector<int> rest(3);
    halves.Receive(rest);
    std::set<int> all(done.begin(), done.end());
    all.insert(rest.begin(), rest.end());
    EXPECT_EQ(all.size(), static_cast<size_t>(kBatch));
    EXPECT_EQ(state, state_);
  }
}

TEST_F(VectorEnvironmentTest,
       SomeEnvironmentsStartAnEpisodeWhileOthersKeepTheirs) {
  VectorEnvironment batch(MakeAll(), {.threads = 2});
  batch.Reset(out_);
  batch.Step(Actions(0), out_);
  const std::vector<double> before = state_;
  const std::vector<int> some = {3, 1};
  batch.SendReset(some, out_);
  std::vector<int> done(2);
  batch.Receive(done);
  // the second episode of 3 and of 1
  for (const int id : some) {
    const auto environment = MakeOne(id);
    environment->SeekEpisode(1);
    std::vector<double> state(kStateSize);
    environment->Reset({.state = state});
    const auto row = state_.begin() + std::ptrdiff_t{id} * kStateSize;
    EXPECT_TRUE(std::equal(state.begin(), state.end(), row));
    EXPECT_TRUE(steps_[static_cast<size_t>(id)].IsFirst());
  }
  for (const size_t id : {0, 2, 4}) {
    EXPECT_FALSE(steps_[id].IsFirst());
    EXPECT_EQ(state_[id * kStateSize], before[id * kStateSize]);
  }
}

TEST_F(VectorEnvironmentTest, PixelsAreWrittenStraightIntoTheBatch) {
  std::vector<std::unique_ptr<Environment>> all;
  all.reserve(kBatch);
  for (int i = 0; i < kBatch; ++i) {
    all.push_back(std::make_unique<WithPixels>(MakeOne(i)));
  }
  VectorEnvironment batch(std::move(all), {.threads = 2});
  std::vector<uint8_t> pixels(kBatch * 3);
  batch.Reset({.state = state_, .pixels = pixels, .steps = steps_});
  for (size_t i = 0; i < kBatch; ++i) {
    EXPECT_EQ(pixels[3 * i],
              static_cast<uint8_t>(100.0 * (1.0 + state_[kStateSize * i])));
    EXPECT_EQ(pixels[3 * i + 2], pixels[3 * i]);
  }
  // pixels alone
  batch.Step(Actions(0), {.pixels = pixels, .steps = steps_});
}

TEST_F(VectorEnvironmentTest, AnEnvironmentsExceptionReachesTheCaller) {
  for (const int threads : {0, 2}) {
    auto all = MakeAll();
    all[2] = std::make_unique<Failing>(MakeOne(2));
    VectorEnvironment batch(std::move(all), {.threads = threads});
    batch.Reset(out_);
    batch.Step(Actions(0), out_);
    batch.Step(Actions(1), out_);
    EXPECT_EQ(MessageOf<DeviceError>([&] { batch.Step(Actions(2), out_); }),
              "no picture");
    EXPECT_EQ(batch.num_under_way(), 0);
    // and ends its episode
    EXPECT_TRUE(steps_[2].IsLast());
    EXPECT_EQ(steps_[1].step_type, StepType::kMid);
    batch.Step(Actions(3), out_);
    EXPECT_TRUE(steps_[2].IsFirst());
    EXPECT_EQ(steps_[1].step_type, StepType::kMid);
    EXPECT_EQ(batch.counters().episodes, kBatch + 1);
  }
}

TEST_F(VectorEnvironmentTest, BadInputIsRefusedBeforeAnythingMoves) {
  VectorEnvironment batch(MakeAll(), {.threads = 1});
  batch.Reset(out_);
  std::vector<double> actions = Actions(0);
  actions[7] = std::nan("");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { batch.Step(actions, out_); }),
            "VectorEnvironment: action[1] is nan, but must be finite");
  actions.pop_back();
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { batch.Step(actions, out_); }),
            "VectorEnvironment: actions have 9 elements, expected 10");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { batch.Reset({.state = state_}); }),
            "VectorEnvironment: steps buffer has 0 elements, expected 5");
  const std::vector<int> twice = {1, 1};
  const std::vector<double> two = {0.0, 0.0, 0.0, 0.0};
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { batch.Send(twice, two, out_); }),
            "VectorEnvironment: environment 1 is already under way");
  std::vector<int> one(1);
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { batch.Receive(one); }),
            "VectorEnvironment: 1 environments requested, but 0 are under way");
  EXPECT_EQ(batch.counters().steps, 0);
}

TEST_F(VectorEnvironmentTest, EnvironmentsOfDifferentSpecsAreRefused) {
  auto all = MakeAll();
  all[4] = std::make_unique<WithPixels>(MakeOne(4));
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { VectorEnvironment(std::move(all), {}); }),
            "VectorEnvironment: environments 4 and 0 have different specs");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { VectorEnvironment({}, {}); }),
            "VectorEnvironment: at least one environment is needed");
}

}  // namespace
}  // namespace replicant::env
