// The next batch is taken and sent to a device while a step computes. Without a
// GPU (tests/support/fake_cuda).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/optimizer.h"
#include "core/graph/ops/reduce.h"
#include "core/replicator/replicator.h"
#include "tests/support/fake_cuda/fake_backend.h"
#include "tests/support/message_of.h"

namespace replicant::replicator {
namespace {

using ::testing::ElementsAre;
using testing::FakeDriver;
using ::testing::IsEmpty;
using testing::MessageOf;

constexpr int64_t kRows = 4;

// What a pipeline was asked for, outside of the replicator that owns it.
struct Log {
  std::vector<std::string> calls;
  bool has_batch_ahead = true;
  int fails_ahead_at = -1;
};

// Batch i, from 1 on, has i in every row.
class Counter : public InputPipeline {
 public:
  Counter(const InputContext& context, Log* log)
      : log_(*log),
        specs_{{"x", DType::kF32, Shape({context.PipelineBatchSize(kRows)})}} {}

  const std::vector<InputSpec>& specs() const override { return specs_; }
  NextResult Next(Clock::TimePoint /*deadline*/,
                  std::span<const MutableTensorView> batch) override {
    log_.calls.emplace_back("next");
    return Give(batch);
  }
  NextResult NextAhead(Clock::TimePoint /*deadline*/,
                       std::span<const MutableTensorView> batch) override {
    if (!log_.has_batch_ahead) return NextResult::kTimeout;
    if (number_ + 1 == log_.fails_ahead_at) throw IoError("broken");
    log_.calls.emplace_back("ahead");
    return Give(batch);
  }
  void UseAhead() override { log_.calls.emplace_back("use"); }

 private:
  NextResult Give(std::span<const MutableTensorView> batch) {
    ++number_;
    std::ranges::fill(batch[0].Span<float>(), static_cast<float>(number_));
    return NextResult::kOk;
  }

  Log& log_;
  const std::vector<InputSpec> specs_;
  int number_ = 0;
};

// w += the sum of x over all replicas, which is the value "w" before.
StepOutputs AddUp(ReplicaContext& replica, const Inputs& batch) {
  Graph& g = replica.graph();
  const VariableId w = g.AddVariable({.name = "w", .shape = {1}});
  const Output before = graph::Neg(g.Read(w));
  const Output sum = graph::ReduceSum(batch.at("x"), {.keep_dims = true});
  const Output update =
      graph::SgdUpdate({w}, {}, {replica.AllSum(sum)},
                       g.Scalar(1.0, DType::kF32), g.Scalar(1.0, DType::kF32));
  return {.values = {{"w", before}, {"x", graph::Neg(sum)}},
          .updates = {update}};
}

struct Case {
  std::string name;
  int replicas;
  std::vector<int> devices;
};

class ReadAheadTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { Make(/*reads_ahead=*/true); }
  void Make(bool reads_ahead) {
    step_.reset();
    input_.reset();
    replicator_.reset();
    const int replicas = GetParam().replicas;
    replicator_ = Replicator::Create(
        {.strategy = replicas > 1 ? &Strategy::kInGraph : &Strategy::kSingle,
         .replicas = replicas,
         .backend = "cuda",
         .read_ahead = reads_ahead,
         .devices = GetParam().devices},
        /*seed=*/1, /*place=*/{},
        [&](std::string_view /*name*/, const kernels::BackendOptions& options) {
          return testing::MakeFakeCudaBackend(driver_, options);
        });
    input_ = replicator_->MakeInput([&](const InputContext& context) {
      return std::make_unique<Counter>(context, &log_);
    });
    step_ = replicator_->Build(*input_, AddUp);
  }
  void TearDown() override {
    step_.reset();
    input_.reset();
    replicator_.reset();
    EXPECT_THAT(driver_->problems(), IsEmpty());
    EXPECT_THAT(driver_->live(), IsEmpty());
  }
  // The rows of the first replica in the batch that the step has learned from.
  static float BatchOf(Step& step) {
    EXPECT_EQ(step.Run({}), NextResult::kOk);
    const int64_t rows = kRows / GetParam().replicas;
    return -step.value("x").Span<float>()[0] / static_cast<float>(rows);
  }

  const std::shared_ptr<FakeDriver> driver_ =
      std::make_shared<FakeDriver>(testing::FakeDriverOptions{
          .num_devices = 2, .host_threads_are_ordered = true});
  Log log_;
  std::unique_ptr<Replicator> replicator_;
  std::unique_ptr<Input> input_;
  std::unique_ptr<Step> step_;
};

INSTANTIATE_TEST_SUITE_P(Strategies, ReadAheadTest,
                         ::testing::Values(Case{"one_replica", 1, {}},
                                           Case{"two_on_one_device", 2, {0}}),
                         [](const auto& test) { return test.param.name; });

TEST_P(ReadAheadTest, StepsHaveTheBatchesInOrder) {
  for (int i = 1; i < 6; ++i) EXPECT_EQ(BatchOf(*step_), i);
  EXPECT_THAT(log_.calls, ElementsAre("next", "ahead", "use", "ahead", "use",
                                      "ahead", "use", "ahead", "use", "ahead"));
}

TEST_P(ReadAheadTest, AnOptionTurnsItOff) {
  Make(/*reads_ahead=*/false);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(BatchOf(*step_), i);
  EXPECT_THAT(log_.calls, ElementsAre("next", "next", "next"));
}

TEST_P(ReadAheadTest, ABatchThatIsNotThereIsAwaitedByItsStep) {
  EXPECT_EQ(BatchOf(*step_), 1.0F);
  log_.has_batch_ahead = false;
  EXPECT_EQ(BatchOf(*step_), 2.0F);
  EXPECT_EQ(BatchOf(*step_), 3.0F);
  log_.has_batch_ahead = true;
  EXPECT_EQ(BatchOf(*step_), 4.0F);
  EXPECT_EQ(BatchOf(*step_), 5.0F);
  EXPECT_THAT(log_.calls, ElementsAre("next", "ahead", "use", "next", "next",
                                      "ahead", "use", "ahead"));
}

// catches an error that takes the results of the step before with it
TEST_P(ReadAheadTest, AnErrorBelongsToItsOwnStep) {
  log_.fails_ahead_at = 3;
  EXPECT_EQ(BatchOf(*step_), 1.0F);
  EXPECT_EQ(BatchOf(*step_), 2.0F);
  EXPECT_EQ(MessageOf([&] { static_cast<void>(step_->Run({})); }), "broken");
}

// Steps that take turns do not read ahead, and a batch that one has read ahead
// before the other was built is not lost and keeps its place.
TEST_P(ReadAheadTest, ASecondStepTakesTheBatchThatIsAhead) {
  EXPECT_EQ(BatchOf(*step_), 1.0F);
  EXPECT_EQ(BatchOf(*step_), 2.0F);
  auto second = replicator_->Build(*input_, AddUp);
  EXPECT_EQ(BatchOf(*second), 3.0F);
  EXPECT_EQ(BatchOf(*step_), 4.0F);
  EXPECT_EQ(BatchOf(*second), 5.0F);
  EXPECT_EQ(BatchOf(*step_), 6.0F);
}

TEST_P(ReadAheadTest, ABatchOutlivesTheStepThatReadItAhead) {
  EXPECT_EQ(BatchOf(*step_), 1.0F);
  step_ = nullptr;
  step_ = replicator_->Build(*input_, AddUp);
  EXPECT_EQ(BatchOf(*step_), 2.0F);
}

// The calls of a step: the batch of the next one travels behind the launch,
// while the step computes.
TEST(ReadAheadCallsTest, TheNextBatchIsSentBetweenLaunchAndEnd) {
  const auto driver = std::make_shared<FakeDriver>();
  {
    Log log;
    const auto replicator = Replicator::Create(
        {.backend = "cuda"}, /*seed=*/1, /*place=*/{},
        [&](std::string_view, const kernels::BackendOptions& options) {
          return testing::MakeFakeCudaBackend(driver, options);
        });
    const auto input = replicator->MakeInput([&](const InputContext& context) {
      return std::make_unique<Counter>(context, &log);
    });
    const auto step = replicator->Build(*input, AddUp);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(step->Run({}), NextResult::kOk);
    const size_t begin = driver->calls().size();
    ASSERT_EQ(step->Run({}), NextResult::kOk);
    std::vector<std::string> calls = driver->calls();
    calls.erase(calls.begin(), calls.begin() + static_cast<int64_t>(begin));
    std::erase(calls, "cuCtxSetCurrent");
    EXPECT_THAT(calls, ElementsAre("cuStreamWaitEvent", "cuMemcpyDtoDAsync",
                                   "cuEventRecord", "cuGraphLaunch",
                                   "cuEventSynchronize", "cuStreamWaitEvent",
                                   "cuMemcpyHtoDAsync", "cuEventRecord",
                                   "cuStreamSynchronize"));
  }
  EXPECT_THAT(driver->problems(), IsEmpty());
  EXPECT_THAT(driver->live(), IsEmpty());
}

}  // namespace
}  // namespace replicant::replicator
