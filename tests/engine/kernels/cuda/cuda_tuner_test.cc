// Tuning of the libraries' plans, on a driver whose events measure what each
// candidate says that it takes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "engine/graph/ops/conv.h"
#include "engine/graph/ops/matmul.h"
#include "engine/kernels/cuda/library_backend.h"
#include "engine/kernels/plan_cache.h"
#include "engine/runtime/executor.h"
#include "tests/support/fake_cuda/fake_driver.h"
#include "tests/support/fake_cuda/host_compiler.h"
#include "tests/support/fake_cuda/host_convolution.h"
#include "tests/support/fake_cuda/host_matmul.h"
#include "tests/support/log_lines.h"
#include "tests/support/message_of.h"

namespace replicant::kernels {
namespace {

using cuda::ConvolutionProblem;
using cuda::MatMulProblem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Eq;
using testing::FakeDriver;
using testing::FakeDriverOptions;
using ::testing::HasSubstr;
using testing::HostCandidate;
using testing::HostCandidates;
using ::testing::IsEmpty;
using testing::LogLines;
using testing::MessageOf;

using Candidates = std::vector<HostCandidate>;

// The libraries' choice is second best.
Candidates ThreeCandidates() {
  return {{.name = "first", .time_us = 4.0, .workspace_size_bytes = 100},
          {.name = "fast", .time_us = 2.0, .workspace_size_bytes = 300},
          {.name = "slow", .time_us = 8.0, .workspace_size_bytes = 200}};
}

struct Offer {
  Candidates matmul = ThreeCandidates();
  Candidates convolution = ThreeCandidates();
  std::string version = "loops 1";
};

std::unique_ptr<Backend> MakeBackend(const std::shared_ptr<FakeDriver>& driver,
                                     const std::shared_ptr<PlanCache>& cache,
                                     const Offer& offer = {},
                                     int device_index = 0) {
  return cuda::MakeBackendOn(
      {.driver = driver,
       .compiler = testing::MakeHostSourceCompiler(),
       .matmul = testing::MakeHostMatMul(
           driver, [offer](const auto& /*problem*/) { return offer.matmul; },
           offer.version),
       .convolution = testing::MakeHostConvolution(
           driver,
           [offer](const auto& /*problem*/) { return offer.convolution; },
           offer.version),
       .nccl = cuda::MakeNccl()},
      {.device_index = device_index, .tuned_plans = cache});
}

// Two steps of a product, computed as a graph in the second run, on `rows`
// rows. Returns the result's first element.
float RunMatMul(Backend& backend, int64_t rows = 3,
                graph::Precision precision = graph::Precision::kF32) {
  graph::Graph g;
  const graph::Output x = g.Input("x", DType::kF32, {rows, 8});
  const graph::Output w = g.Input("w", DType::kF32, {8, 5});
  runtime::VariableStore store(backend, /*seed=*/1);
  runtime::Executor plan(g, {.outputs = {graph::MatMul(x, w)}, .updates = {}},
                         store, {.passes = {.precision = precision}});
  std::ranges::fill(plan.input("x").Span<float>(), 2.0F);
  std::ranges::fill(plan.input("w").Span<float>(), 0.25F);
  plan.Run();
  plan.Run();
  return plan.output(0).Span<float>()[0];
}

float RunConvolution(Backend& backend) {
  graph::Graph g;
  const graph::Output x = g.Input("x", DType::kF32, {2, 6, 6, 3});
  const graph::Output w = g.Input("w", DType::kF32, {4, 3, 3, 3});
  runtime::VariableStore store(backend, /*seed=*/1);
  runtime::Executor plan(
      g,
      {.outputs = {graph::Conv2d(x, w, {.stride = 1, .padding = 1})},
       .updates = {}},
      store);
  std::ranges::fill(plan.input("x").Span<float>(), 1.0F);
  std::ranges::fill(plan.input("w").Span<float>(), 0.5F);
  plan.Run();
  return plan.output(0).Span<float>()[0];
}

class CudaTunerTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_THAT(driver_->problems(), IsEmpty());
    EXPECT_THAT(driver_->live(), IsEmpty());
  }
  std::filesystem::path file() const {
    return folder_.path() / "tuned_plans.txt";
  }
  std::shared_ptr<PlanCache> NewCache() const {
    return std::make_shared<PlanCache>(folder_.path());
  }
  int64_t CountCalls(const std::string& name) const {
    const std::vector<std::string> calls = driver_->calls();
    return std::ranges::count(calls, name);
  }

  const TemporaryFolder folder_;
  const std::shared_ptr<FakeDriver> driver_ = std::make_shared<FakeDriver>();
};

// 3 candidates, each once to warm up and 8 times in a capture.
constexpr int64_t kTuningCalls = 3 * 9;

TEST_F(CudaTunerTest, TheFastestCandidateIsTakenAndKept) {
  const LogLines log(spdlog::level::info);
  EXPECT_EQ(RunMatMul(*MakeBackend(driver_, NewCache())), 4.0F);
  EXPECT_EQ(ReadFile(file()),
            "replicant tuned plans, format 1\n"
            "fake H100, compute capability 9.0, driver of CUDA 13.0, loops 1: "
            "1 products of a [3,8] and b [8,5], f32 to f32\tfast\t2.000 us\t"
            "4.000 us\n");
  // the plan's own: one launch, and one in the capture of its second run
  EXPECT_EQ(CountCalls("matmul"), kTuningCalls + 2);
  EXPECT_THAT(
      log.lines(),
      ElementsAre(AllOf(
          HasSubstr("cuda:0: tuned 1 problems in "),
          HasSubstr(" s and took 0 from " + file().string() +
                    "; 0 keep the library's choice, 0 candidates failed, the "
                    "largest gain is 2.00 times: 1 products of a [3,8] and b "
                    "[8,5], f32 to f32"))));
}

TEST_F(CudaTunerTest, ConvolutionsAreTuned) {
  // 3x3 of the window lie in the image's corner: 2x2, of 3 channels
  EXPECT_EQ(RunConvolution(*MakeBackend(driver_, NewCache())), 6.0F);
  EXPECT_THAT(ReadFile(file()),
              HasSubstr("loops 1: convolution forward, x [2,6,6,3], w "
                        "[4,3,3,3], y [2,6,6,4], stride 1, padding 1, f32\t"
                        "fast\t2.000 us\t4.000 us\n"));
}

TEST_F(CudaTunerTest, TheFirstStaysWhereItIsTheFastest) {
  const LogLines log(spdlog::level::info);
  Offer offer;
  offer.matmul[0].time_us = 1.0;
  RunMatMul(*MakeBackend(driver_, NewCache(), offer));
  EXPECT_THAT(ReadFile(file()), HasSubstr("\tfirst\t1.000 us\t1.000 us\n"));
  EXPECT_THAT(log.lines(),
              ElementsAre(HasSubstr("; 1 keep the library's choice, 0 "
                                    "candidates failed, the largest gain is "
                                    "1.00 times")));
}

// Catches minutes that are spent on candidates of ten times the best's time.
TEST_F(CudaTunerTest, AHopelessCandidateIsSampledOnce) {
  const auto count_samples = [&](double slow_us) {
    Offer offer;
    offer.matmul = {{.name = "first", .time_us = 100.0},
                    {.name = "slow", .time_us = slow_us}};
    const TemporaryFolder folder;
    const int64_t before = CountCalls("cuEventElapsedTime");
    RunMatMul(*MakeBackend(driver_, std::make_shared<PlanCache>(folder.path()),
                           offer));
    EXPECT_THAT(ReadFile(folder.path() / "tuned_plans.txt"),
                HasSubstr("\tfirst\t100.000 us"));
    return CountCalls("cuEventElapsedTime") - before;
  };
  // a sample is 8 launches: 4 times 800 us, and 1000 us
  EXPECT_EQ(count_samples(525.0), 6 + 6);
  EXPECT_EQ(count_samples(526.0), 6 + 1);
}

// Catches a tie that is decided by chance.
TEST_F(CudaTunerTest, OfEquallyFastCandidatesTheFirstIsTaken) {
  Offer offer;
  for (HostCandidate& candidate : offer.matmul) candidate.time_us = 3.0;
  RunMatMul(*MakeBackend(driver_, NewCache(), offer));
  EXPECT_THAT(ReadFile(file()), HasSubstr("\tfirst\t3.000 us"));
}

TEST_F(CudaTunerTest, WithoutACacheNothingIsTimed) {
  EXPECT_EQ(RunMatMul(*MakeBackend(driver_, nullptr)), 4.0F);
  EXPECT_EQ(CountCalls("matmul"), 2);
  EXPECT_EQ(CountCalls("cuEventElapsedTime"), 0);
}

TEST_F(CudaTunerTest, ASingleCandidateIsNotTimed) {
  Offer offer;
  offer.matmul.resize(1);
  RunMatMul(*MakeBackend(driver_, NewCache(), offer));
  EXPECT_EQ(CountCalls("matmul"), 2);
  EXPECT_FALSE(std::filesystem::exists(file()));
}

// As a second process: a separate cache and backend.
TEST_F(CudaTunerTest, ASecondRunFindsTheCacheAndTimesNothing) {
  RunMatMul(*MakeBackend(driver_, NewCache()));
  const int64_t before = CountCalls("matmul");
  const int64_t timed = CountCalls("cuEventElapsedTime");
  EXPECT_GT(timed, 0);
  const LogLines log(spdlog::level::info);
  EXPECT_EQ(RunMatMul(*MakeBackend(driver_, NewCache())), 4.0F);
  EXPECT_EQ(CountCalls("matmul"), before + 2);
  EXPECT_EQ(CountCalls("cuEventElapsedTime"), timed);
  EXPECT_THAT(log.lines(), ElementsAre("cuda:0: took 1 tuned plans from " +
                                       file().string()));
}

// An entry belongs to one problem, device and library.
TEST_F(CudaTunerTest, AnotherProblemOrVersionIsTunedForItself) {
  RunMatMul(*MakeBackend(driver_, NewCache()));
  const auto count_tuned = [&](const auto& run) {
    const int64_t before = CountCalls("cuEventElapsedTime");
    run();
    return CountCalls("cuEventElapsedTime") - before;
  };
  EXPECT_GT(count_tuned([&] {
              RunMatMul(*MakeBackend(driver_, NewCache()), /*rows=*/4);
            }),
            0);
  EXPECT_GT(
      count_tuned([&] {
        RunMatMul(*MakeBackend(driver_, NewCache(), {.version = "loops 2"}));
      }),
      0);
  EXPECT_EQ(count_tuned([&] {
              RunMatMul(*MakeBackend(driver_, NewCache()), /*rows=*/4);
            }),
            0);
}

// The plan that is fastest with TF32 is not taken without it.
TEST_F(CudaTunerTest, AProblemInF32TakesNothingOfOneInTF32) {
  const auto backend_of = [&] {
    return cuda::MakeBackendOn(
        {.driver = driver_,
         .compiler = testing::MakeHostSourceCompiler(),
         .matmul = testing::MakeHostMatMul(
             driver_,
             [](const MatMulProblem& problem) -> Candidates {
               if (!problem.allows_tf32) {
                 return {{.name = "exact", .time_us = 5.0},
                         {.name = "exact too", .time_us = 4.0}};
               }
               return {{.name = "exact", .time_us = 5.0},
                       {.name = "rounding", .time_us = 1.0}};
             }),
         .convolution = testing::MakeHostConvolution(driver_),
         .nccl = cuda::MakeNccl()},
        {.tuned_plans = NewCache()});
  };
  RunMatMul(*backend_of(), /*rows=*/3, graph::Precision::kTF32);
  RunMatMul(*backend_of(), /*rows=*/3, graph::Precision::kF32);
  EXPECT_THAT(ReadFile(file()),
              AllOf(HasSubstr("[8,5], f32 as tf32 to f32\trounding\t"),
                    HasSubstr("[8,5], f32 to f32\texact too\t")));
}

TEST_F(CudaTunerTest, CandidatesThatFailAreLeftOut) {
  const LogLines log(spdlog::level::info);
  Offer offer;
  offer.matmul[1].fails = true;
  offer.matmul.push_back(
      {.name = "eager", .time_us = 1.0, .fails_in_capture = true});
  EXPECT_EQ(RunMatMul(*MakeBackend(driver_, NewCache(), offer)), 4.0F);
  EXPECT_THAT(ReadFile(file()), HasSubstr("\tfirst\t4.000 us"));
  EXPECT_THAT(
      log.lines(),
      ElementsAre(
          "cuda:0: fast is left out for 1 products of a [3,8] and b [8,5], f32 "
          "to f32: matmul: fast fails",
          "cuda:0: eager is left out for 1 products of a [3,8] and b [8,5], "
          "f32 to f32: matmul: eager fails",
          HasSubstr("1 keep the library's choice, 2 candidates failed")));
}

TEST_F(CudaTunerTest, TheFirstMayBeTheOneThatFails) {
  Offer offer;
  offer.matmul[0].fails = true;
  EXPECT_EQ(RunMatMul(*MakeBackend(driver_, NewCache(), offer)), 4.0F);
  EXPECT_THAT(ReadFile(file()), HasSubstr("\tfast\t2.000 us\t0.000 us\n"));
}

// The step then says what is wrong with it.
TEST_F(CudaTunerTest, WhereAllFailTheFirstIsTakenWithAWarning) {
  Offer offer;
  for (HostCandidate& candidate : offer.matmul) candidate.fails = true;
  const LogLines log;
  EXPECT_EQ(MessageOf<DeviceError>(
                [&] { RunMatMul(*MakeBackend(driver_, NewCache(), offer)); }),
            "matmul: first fails");
  EXPECT_THAT(log.lines(),
              ElementsAre("cuda:0: all 3 candidates for 1 products of a [3,8] "
                          "and b [8,5], f32 to f32 failed, the last with: "
                          "matmul: slow fails; using the library's choice"));
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(CudaTunerTest, APlanThatTheLibraryNoLongerHasIsTunedAnew) {
  RunMatMul(*MakeBackend(driver_, NewCache()));
  Offer offer;
  offer.matmul[1].name = "faster";
  EXPECT_EQ(RunMatMul(*MakeBackend(driver_, NewCache(), offer)), 4.0F);
  EXPECT_THAT(ReadFile(file()), HasSubstr("f32 to f32\tfaster\t2.000 us"));
  const int64_t timed = CountCalls("cuEventElapsedTime");
  RunMatMul(*MakeBackend(driver_, NewCache(), offer));
  EXPECT_EQ(CountCalls("cuEventElapsedTime"), timed);
}

TEST(CudaTunerMemoryTest, AProblemThatDoesNotFitKeepsTheFirstAndSaysSo) {
  const TemporaryFolder folder;
  // the plan's first candidate fits, the workspaces of all do not
  const auto driver = std::make_shared<FakeDriver>(
      FakeDriverOptions{.memory_size_bytes = 100'000});
  Offer offer;
  offer.matmul[2].workspace_size_bytes = 90'000;
  const LogLines log;
  EXPECT_EQ(
      RunMatMul(*MakeBackend(driver, std::make_shared<PlanCache>(folder.path()),
                             offer),
                /*rows=*/300),
      4.0F);
  EXPECT_THAT(
      log.lines(),
      ElementsAre("cuda:0: not enough memory to tune 1 products of a [300,8] "
                  "and b [8,5], f32 to f32: its operands and workspace take "
                  "105760 bytes; using the library's choice"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "tuned_plans.txt"));
  EXPECT_THAT(driver->problems(), IsEmpty());
  EXPECT_THAT(driver->live(), IsEmpty());
}

// As replicas do: each on its own thread with a separate backend, or all with
// one. Catches a problem that is tuned twice; races show under ThreadSanitizer.
class CudaTunerReplicasTest : public ::testing::TestWithParam<bool> {};

TEST_P(CudaTunerReplicasTest, ReplicasTuneAProblemOnce) {
  const bool share_a_backend = GetParam();
  const TemporaryFolder folder;
  constexpr int kReplicas = 4;
  const int num_backends = share_a_backend ? 1 : kReplicas;
  const auto driver = std::make_shared<FakeDriver>(
      FakeDriverOptions{.num_devices = num_backends,
                        .host_threads_are_ordered = share_a_backend});
  const auto cache = std::make_shared<PlanCache>(folder.path());
  {
    std::vector<std::unique_ptr<Backend>> backends;
    backends.reserve(static_cast<size_t>(num_backends));
    for (int i = 0; i < num_backends; ++i) {
      backends.push_back(MakeBackend(driver, cache, {}, i));
    }
    std::vector<std::jthread> threads;
    threads.reserve(kReplicas);
    for (int i = 0; i < kReplicas; ++i) {
      threads.emplace_back([&, i] {
        const auto index = static_cast<size_t>(i % num_backends);
        EXPECT_EQ(RunMatMul(*backends[index]), 4.0F);
      });
    }
  }
  const std::vector<std::string> calls = driver->calls();
  EXPECT_EQ(std::ranges::count(calls, "matmul"), kTuningCalls + 2 * kReplicas);
  EXPECT_THAT(driver->problems(), IsEmpty());
  EXPECT_THAT(driver->live(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Backends, CudaTunerReplicasTest, ::testing::Bool());

// A step is tuned and run; every call of the outside fails once. A candidate
// that fails while it is tried is left out, as the log tells; all else ends
// with the name of the call.
TEST(CudaTunerFailureTest, EachCallThatFailsIsToldAndLeavesNothing) {
  const auto run = [](const std::shared_ptr<FakeDriver>& driver) {
    // in memory: files are not what fails here
    RunMatMul(*MakeBackend(driver, std::make_shared<PlanCache>("")));
  };
  const auto whole = std::make_shared<FakeDriver>();
  run(whole);
  const std::vector<std::string> calls = whole->calls();
  const std::set<std::string> cleanups = {
      "cuMemFree",          "cuMemFreeHost",
      "cuModuleUnload",     "cuStreamDestroy",
      "cuEventDestroy",     "cuGraphDestroy",
      "cuGraphExecDestroy", "cuDevicePrimaryCtxRelease"};
  std::set<std::string> told;
  std::set<std::string> logged;
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto driver = std::make_shared<FakeDriver>();
    driver->FailCall(i, CUDA_ERROR_UNKNOWN);
    const LogLines log(spdlog::level::info);
    const std::string message = MessageOf<DeviceError>([&] { run(driver); });
    const bool may_pass =
        cleanups.contains(calls[i]) ||
        (calls[i] == "cuCtxSetCurrent" && i + 1 < calls.size() &&
         cleanups.contains(calls[i + 1]));
    constexpr const char* kError = "CUDA_ERROR_UNKNOWN: unknown error";
    if (message.find(kError) != std::string::npos) {
      told.insert(calls[i]);
    } else if (!may_pass) {
      EXPECT_EQ(message, "no exception") << "call " << i << ", " << calls[i];
      EXPECT_THAT(log.lines(), Contains(AllOf(HasSubstr(" is left out for "),
                                              HasSubstr(kError))))
          << "call " << i << ", " << calls[i];
      logged.insert(calls[i]);
    }
    EXPECT_THAT(driver->live(), IsEmpty()) << "call " << i << ", " << calls[i];
    EXPECT_THAT(driver->problems(), IsEmpty())
        << "call " << i << ", " << calls[i];
  }
  for (const char* call :
       {"cuDeviceGetName", "cuEventCreate", "cuStreamCreate", "cuEventRecord",
        "cuEventElapsedTime", "cuEventSynchronize", "cuGraphLaunch",
        "cuMemAlloc", "matmul"}) {
    EXPECT_TRUE(told.contains(call)) << call;
  }
  EXPECT_THAT(logged, ElementsAre("cuCtxSetCurrent", "cuGraphInstantiate",
                                  "cuStreamBeginCapture", "cuStreamEndCapture",
                                  "cuStreamSynchronize", "matmul"));
}

// Catches a driver of tests that lets wrong timing pass.
TEST(CudaTunerDriverTest, ATimeWithoutTimedOrFinishedEventsIsAProblem) {
  const auto driver = std::make_shared<FakeDriver>();
  const auto backend = MakeBackend(driver, nullptr);
  CUstream stream = nullptr;
  CUevent untimed = nullptr;
  CUevent timed = nullptr;
  ASSERT_EQ(driver->StreamCreate(&stream), CUDA_SUCCESS);
  ASSERT_EQ(driver->EventCreate(&untimed, CU_EVENT_DISABLE_TIMING),
            CUDA_SUCCESS);
  ASSERT_EQ(driver->EventCreate(&timed, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  float time_ms = 0.0F;
  EXPECT_NE(driver->EventElapsedTime(&time_ms, timed, timed), CUDA_SUCCESS);
  ASSERT_EQ(driver->RunOnHost(
                "work", stream, {}, {}, [] {}, 3.0),
            CUDA_SUCCESS);
  ASSERT_EQ(driver->EventRecord(timed, stream), CUDA_SUCCESS);
  ASSERT_EQ(driver->EventRecord(untimed, stream), CUDA_SUCCESS);
  EXPECT_NE(driver->EventElapsedTime(&time_ms, timed, timed), CUDA_SUCCESS);
  ASSERT_EQ(driver->EventSynchronize(timed), CUDA_SUCCESS);
  EXPECT_EQ(driver->EventElapsedTime(&time_ms, timed, timed), CUDA_SUCCESS);
  EXPECT_NE(driver->EventElapsedTime(&time_ms, timed, untimed), CUDA_SUCCESS);
  EXPECT_THAT(
      driver->problems(),
      ElementsAre("cuEventElapsedTime: an event without a time",
                  "cuEventElapsedTime: the host has not waited for the event",
                  "cuEventElapsedTime: an event without a time"));
  driver->EventDestroy(timed);
  driver->EventDestroy(untimed);
  driver->StreamDestroy(stream);
}

}  // namespace
}  // namespace replicant::kernels
