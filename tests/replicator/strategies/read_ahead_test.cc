// The next batch is taken and sent to a device while a step computes. Without a
// GPU (tests/support/fake_cuda).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/graph/ops/reduce.h"
#include "replicator/make_replicator.h"
#include "replicator/replicator.h"
#include "tests/support/fake_cuda/fake_backend.h"
#include "tests/support/fake_cuda/host_nccl.h"
#include "tests/support/message_of.h"

namespace replicant::replicator {
namespace {

using ::testing::ElementsAre;
using testing::FakeDriver;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MessageOf;
using testing::NcclWorld;

constexpr int64_t kRows = 4;

// The requests to a pipeline, outside of the replicator that owns it.
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

// w -= reduce(the sum of x). Values before: -w and -x.
StepOutputs Subtract(ReplicaContext& replica, const Inputs& batch,
                     const std::function<Output(Output)>& reduce) {
  Graph& g = replica.graph();
  const VariableId w = g.AddVariable({.name = "w", .shape = {1}});
  const Output before = graph::Neg(g.Read(w));
  const Output sum = graph::ReduceSum(batch.at("x"), {.keep_dims = true});
  const Output update =
      graph::SgdUpdate({w}, {}, {reduce(sum)}, g.Scalar(1.0, DType::kF32),
                       g.Scalar(1.0, DType::kF32));
  return {.values = {{"w", before}, {"x", graph::Neg(sum)}},
          .updates = {update}};
}

// By the sum over all replicas.
StepOutputs AddUp(ReplicaContext& replica, const Inputs& batch) {
  return Subtract(replica, batch,
                  [&](Output sum) { return replica.AllSum(sum); });
}

// By the mean over all replicas and all batches of an update.
StepOutputs Learn(ReplicaContext& replica, const Inputs& batch) {
  return Subtract(replica, batch, [&](Output sum) {
    return replica.MeanGradients({sum}).at(0);
  });
}

bool IsCleanup(const std::string& call) {
  return call == "cuMemFree" || call == "cuMemFreeHost" ||
         call == "cuModuleUnload" || call.ends_with("Destroy") ||
         call == "cuDevicePrimaryCtxRelease";
}

struct Case {
  std::string name;
  int replicas;
  std::vector<int> devices;

  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

class ReadAheadTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { Make(/*reads_ahead=*/true); }
  void Make(bool reads_ahead, int accumulation_steps = 1,
            const StepFn& step_fn = AddUp) {
    Release();
    const int replicas = GetParam().replicas;
    replicator_ = MakeReplicator(
        {.strategy = replicas > 1 ? &Strategy::kInGraph : &Strategy::kSingle,
         .replicas = replicas,
         .backend = "cuda",
         .read_ahead = reads_ahead,
         .accumulation_steps = accumulation_steps,
         .devices = GetParam().devices},
        /*seed=*/1, /*rank=*/{},
        [&](std::string_view /*name*/, const kernels::BackendOptions& options) {
          return testing::MakeFakeCudaBackend(
              driver_, testing::MakeHostNccl(world_), options);
        });
    input_ = replicator_->MakeInput([&](const InputContext& context) {
      return std::make_unique<Counter>(context, &log_);
    });
    step_ = replicator_->Build(*input_, step_fn);
  }
  // Destroys everything, which must leave the driver clean.
  void Release() {
    step_.reset();
    input_.reset();
    replicator_.reset();
    if (!may_use_freed_memory_) {
      EXPECT_THAT(driver_->problems(), IsEmpty());
    }
    EXPECT_THAT(driver_->live(), IsEmpty());
  }
  void TearDown() override { Release(); }
  // A new driver, with a step on it.
  void StartAnew() {
    Release();
    may_use_freed_memory_ = false;
    driver_ = MakeDriver();
    world_ = std::make_shared<NcclWorld>(driver_);
    log_ = {};
    Make(/*reads_ahead=*/true);
  }
  // The rows of the first replica in the batch that the step has learned from.
  static float BatchOf(Step& step) {
    EXPECT_EQ(step.Run({}), NextResult::kOk);
    const int64_t rows = kRows / GetParam().replicas;
    return -step.value("x").Span<float>()[0] / static_cast<float>(rows);
  }

  static std::shared_ptr<FakeDriver> MakeDriver() {
    return std::make_shared<FakeDriver>(testing::FakeDriverOptions{
        .num_devices = 2, .host_threads_are_ordered = true});
  }

  std::shared_ptr<FakeDriver> driver_ = MakeDriver();
  std::shared_ptr<NcclWorld> world_ = std::make_shared<NcclWorld>(driver_);
  Log log_;
  bool may_use_freed_memory_ = false;
  std::unique_ptr<Replicator> replicator_;
  std::unique_ptr<Input> input_;
  std::unique_ptr<Step> step_;
};

INSTANTIATE_TEST_SUITE_P(Strategies, ReadAheadTest,
                         ::testing::Values(Case{"one_replica", 1, {}},
                                           Case{"two_on_one_device", 2, {0}},
                                           Case{"two_devices", 2, {}}),
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

// Would catch a plan of earlier batches that takes each for the first.
TEST_P(ReadAheadTest, AllBatchesOfAnUpdateCount) {
  Make(/*reads_ahead=*/true, /*accumulation_steps=*/3, Learn);
  for (int i = 1; i <= 7; ++i) ASSERT_EQ(step_->Run({}), NextResult::kOk);
  // two updates by the batches 1 to 3 and 4 to 6
  const int64_t rows = kRows / GetParam().replicas;
  EXPECT_EQ(step_->value("w").Span<float>()[0],
            static_cast<float>(rows) * (2.0F + 5.0F));
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

// catches steps that are counted after their end
TEST_P(ReadAheadTest, AStepThatIsBuiltAnewReadsAheadAgain) {
  EXPECT_EQ(BatchOf(*step_), 1.0F);
  step_ = nullptr;
  step_ = replicator_->Build(*input_, AddUp);
  for (int i = 2; i < 5; ++i) EXPECT_EQ(BatchOf(*step_), i);
  EXPECT_THAT(log_.calls, ElementsAre("next", "ahead", "use", "ahead", "use",
                                      "ahead", "use", "ahead"));
}

TEST_P(ReadAheadTest, AStepReadsAheadAgainWhenTheOthersAreGone) {
  auto second = replicator_->Build(*input_, AddUp);
  EXPECT_EQ(BatchOf(*step_), 1.0F);
  EXPECT_EQ(BatchOf(*second), 2.0F);
  second = nullptr;
  EXPECT_EQ(BatchOf(*step_), 3.0F);
  EXPECT_EQ(BatchOf(*step_), 4.0F);
  EXPECT_THAT(log_.calls,
              ElementsAre("next", "next", "next", "ahead", "use", "ahead"));
}

// Every call of the driver fails once: in steps that read ahead, while a step
// is destroyed and built anew with a batch ahead, and in a last step without
// one, so that each error has a step that throws it.
TEST_P(ReadAheadTest, EachCallThatFailsEndsInAnErrorAndLeavesNothing) {
  std::set<std::string> failed;
  // threads of replicas make their calls in another order each time
  const size_t stride = GetParam().replicas > 1 ? 7 : 1;
  for (size_t i = 0;; i += stride) {
    StartAnew();
    const size_t index = driver_->calls().size() + i;
    driver_->FailCall(index, CUDA_ERROR_UNKNOWN);
    std::vector<float> batches;
    // calls of the destruction of a step
    size_t begin = 0;
    size_t end = 0;
    const std::string message = MessageOf([&] {
      for (int k = 1; k < 7; ++k) {
        if (k == 4) {
          begin = driver_->calls().size();
          step_ = nullptr;
          end = driver_->calls().size();
          step_ = replicator_->Build(*input_, AddUp);
        }
        log_.has_batch_ahead = k < 6;
        batches.push_back(BatchOf(*step_));
      }
    });
    const std::vector<std::string> calls = driver_->calls();
    if (calls.size() <= index) {
      EXPECT_EQ(message, "no exception");
      break;
    }
    // a cleanup that fails has nobody to tell; it sets the context, too
    const bool is_lost = begin <= index && index < end;
    const bool may_pass =
        is_lost || calls[index] == "cuCtxSetCurrent" || IsCleanup(calls[index]);
    // memory is freed all the same when it cannot be waited for
    may_use_freed_memory_ = is_lost;
    if (!may_pass || message != "no exception") {
      EXPECT_THAT(message, HasSubstr("CUDA_ERROR_UNKNOWN"))
          << "call " << i << ", " << calls[index];
      failed.insert(calls[index]);
    }
    // none is lost or comes twice
    for (size_t k = 0; k < batches.size(); ++k) {
      EXPECT_EQ(batches[k], static_cast<float>(k + 1)) << "call " << i;
    }
  }
  // threads do not fail the same calls each time
  if (stride > 1) return;
  for (const char* call :
       {"cuMemcpyHtoDAsync", "cuMemcpyDtoDAsync", "cuEventRecord",
        "cuStreamWaitEvent", "cuEventSynchronize", "cuGraphLaunch",
        "cuStreamSynchronize", "cuMemHostAlloc"}) {
    EXPECT_TRUE(failed.contains(call)) << call;
  }
}

// catches a batch whose plan is gone: the next step would read its memory
TEST_P(ReadAheadTest, ABatchThatCannotBeRecalledIsAnErrorOfTheNextStep) {
  if (GetParam().replicas > 1) GTEST_SKIP() << "the host has a copy there";
  EXPECT_EQ(BatchOf(*step_), 1.0F);
  driver_->FailNext("cuEventSynchronize", /*device=*/0, CUDA_ERROR_UNKNOWN);
  step_ = nullptr;
  step_ = replicator_->Build(*input_, AddUp);
  EXPECT_EQ(MessageOf([&] { static_cast<void>(step_->Run({})); }),
            "cuda:0: cuEventSynchronize: CUDA_ERROR_UNKNOWN: unknown error");
  // its batch is lost, and the pipeline knows that it is over
  EXPECT_EQ(BatchOf(*step_), 3.0F);
  EXPECT_THAT(log_.calls, ElementsAre("next", "ahead", "use", "next", "ahead"));
}

// The calls of a step: the batch of the next one travels behind the launch,
// while the step computes.
TEST(ReadAheadCallsTest, TheNextBatchIsSentBetweenLaunchAndEnd) {
  const auto driver = std::make_shared<FakeDriver>();
  {
    Log log;
    const auto replicator = MakeReplicator(
        {.backend = "cuda"}, /*seed=*/1, /*rank=*/{},
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
