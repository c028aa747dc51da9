// A plan on the CUDA backend as one graph, and what the fake driver's captures
// are worth.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/kernels/cuda/device.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/launch_sequence.h"
#include "tests/support/fake_cuda/fake_backend.h"
#include "tests/support/message_of.h"

namespace replicant::kernels {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FakeDriver;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeFakeCudaBackend;
using testing::MessageOf;

// w -= 0.5 sum(x) in every element; the output is -w as it was before.
struct Step {
  explicit Step(Backend& backend, const runtime::CompileOptions& options = {})
      : store(backend, /*seed=*/1) {
    graph::Graph g;
    const graph::VariableId w = g.AddVariable({.name = "w", .shape = {2}});
    const graph::Output before = graph::Neg(g.Read(w));
    const graph::Output x = g.Input("x", DType::kF32, {3, 2});
    const graph::Output gradient = graph::ReduceSum(x, {.axes = {0}});
    const graph::Output update =
        graph::SgdUpdate({w}, {}, {gradient}, g.Scalar(0.5, DType::kF32),
                         g.Scalar(1.0, DType::kF32));
    plan = std::make_unique<runtime::Executor>(
        g, runtime::PlanSpec{.outputs = {before}, .updates = {update}}, store,
        options);
  }

  void Fill(float value) {
    std::ranges::fill(plan->input("x").Span<float>(), value);
  }
  float output() const { return plan->output(0).Span<float>()[0]; }

  runtime::VariableStore store;
  std::unique_ptr<runtime::Executor> plan;
};

class CudaGraphTest : public ::testing::Test {
 protected:
  void TearDown() override {
    backend_.reset();
    EXPECT_THAT(driver_->problems(), IsEmpty());
    EXPECT_THAT(driver_->live(), IsEmpty());
  }
  // The calls of `work` without those that make the context current.
  template <typename Work>
  std::vector<std::string> CallsOf(const Work& work) {
    const size_t begin = driver_->calls().size();
    work();
    std::vector<std::string> calls = driver_->calls();
    calls.erase(calls.begin(), calls.begin() + static_cast<int64_t>(begin));
    std::erase(calls, "cuCtxSetCurrent");
    return calls;
  }

  const std::shared_ptr<FakeDriver> driver_ = std::make_shared<FakeDriver>();
  std::unique_ptr<Backend> backend_ = MakeFakeCudaBackend(driver_);
};

TEST_F(CudaGraphTest, AStepIsOneLaunchFromItsSecondRunOn) {
  Step step(*backend_);
  step.Fill(1.0F);
  const std::vector<std::string> first = CallsOf([&] { step.plan->Run(); });
  EXPECT_THAT(first, Contains("cuLaunchKernel"));
  EXPECT_EQ(step.output(), 0.0F);
  EXPECT_THAT(CallsOf([&] { step.plan->Run(); }),
              Contains("cuGraphInstantiate"));
  EXPECT_EQ(step.output(), 1.5F);
  for (int run = 3; run < 5; ++run) {
    const size_t num_launches = driver_->launches().size();
    // hand over the batch, launch, wait
    EXPECT_THAT(
        CallsOf([&] { step.plan->Run(); }),
        ElementsAre("cuStreamWaitEvent", "cuMemcpyHtoDAsync", "cuEventRecord",
                    "cuStreamWaitEvent", "cuMemcpyDtoDAsync", "cuEventRecord",
                    "cuGraphLaunch", "cuEventSynchronize",
                    "cuStreamSynchronize"));
    EXPECT_EQ(step.output(), 1.5F * static_cast<float>(run - 1));
    // the graph runs what the first run launched
    EXPECT_EQ(driver_->launches().size() - num_launches,
              std::ranges::count(first, "cuLaunchKernel"));
  }
}

TEST_F(CudaGraphTest, AnOptionTurnsGraphsOff) {
  backend_ = MakeFakeCudaBackend(driver_, {.has_recordings = false});
  Step step(*backend_);
  step.Fill(1.0F);
  const std::vector<std::string> calls = CallsOf([&] {
    for (int i = 0; i < 3; ++i) step.plan->Run();
  });
  EXPECT_EQ(step.output(), 3.0F);
  EXPECT_THAT(calls, Contains("cuLaunchKernel"));
  EXPECT_THAT(calls, ::testing::Not(Contains("cuStreamBeginCapture")));
}

// A profile empties the stream after each kernel, which a graph cannot.
TEST_F(CudaGraphTest, AProfileLaunchesOneByOne) {
  Step step(*backend_, {.has_profile = true});
  const std::vector<std::string> calls = CallsOf([&] {
    for (int i = 0; i < 3; ++i) step.plan->Run();
  });
  EXPECT_THAT(calls, ::testing::Not(Contains("cuGraphLaunch")));
  EXPECT_FALSE(step.plan->profile().empty());
}

// Work of the host, such as a call between replicas.
class HostKernel : public Kernel {
 public:
  explicit HostKernel(int* num_launches) : num_launches_(*num_launches) {}
  void Bind(const KernelBindings& bindings) override { bindings_ = bindings; }
  void Launch(Stream& stream) override {
    ++num_launches_;
    stream.CopyToHost(bytes_.data(), bindings_.inputs[0], bytes_.size());
    stream.Synchronize();
    stream.CopyToDevice(bindings_.outputs[0], bytes_.data(), bytes_.size());
  }

 private:
  int& num_launches_;
  KernelBindings bindings_;
  std::array<std::byte, 8> bytes_;
};

// catches host work that a graph swallows: it would be done once
TEST_F(CudaGraphTest, WorkOfTheHostDividesAStepIntoGraphs) {
  int num_launches = 0;
  Step step(
      *backend_,
      {.make_kernel = [&](const graph::Graph&,
                          const graph::Node& node) -> std::unique_ptr<Kernel> {
        if (node.op->name != "ReduceSum") return nullptr;
        return std::make_unique<HostKernel>(&num_launches);
      }});
  step.Fill(1.0F);
  for (int i = 0; i < 2; ++i) step.plan->Run();
  const std::vector<std::string> calls = CallsOf([&] { step.plan->Run(); });
  EXPECT_EQ(num_launches, 3);
  // the first row of x and not the sum, two times
  EXPECT_EQ(step.output(), 1.0F);
  EXPECT_EQ(std::ranges::count(calls, "cuGraphLaunch"), 1);
}

// A copy on a separate stream, begun by one kernel and awaited by another.
struct Aside {
  explicit Aside(Backend& backend)
      : from(backend.Allocate(64)),
        to(backend.Allocate(64)),
        stream(backend.CreateStream()),
        begin(backend.CreateEvent()),
        end(backend.CreateEvent()) {}

  std::unique_ptr<Buffer> from, to;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> begin, end;
};

class ForkKernel : public Kernel {
 public:
  explicit ForkKernel(Aside* aside) : aside_(*aside) {}
  bool CanRecord() const override { return true; }
  int open_forks() const override { return 1; }
  void Bind(const KernelBindings& /*bindings*/) override {}
  void Launch(Stream& stream) override {
    stream.Record(*aside_.begin);
    aside_.stream->Wait(*aside_.begin);
    aside_.stream->CopyOnDevice(aside_.to->data(), aside_.from->data(), 64);
    aside_.stream->Record(*aside_.end);
  }

 private:
  Aside& aside_;
};

class JoinKernel : public Kernel {
 public:
  explicit JoinKernel(Aside* aside) : aside_(*aside) {}
  bool CanRecord() const override { return true; }
  int open_forks() const override { return -1; }
  void Bind(const KernelBindings& /*bindings*/) override {}
  void Launch(Stream& stream) override { stream.Wait(*aside_.end); }

 private:
  Aside& aside_;
};

// catches a graph that ends before its fork is joined
TEST_F(CudaGraphTest, AForkIsRecordedTogetherWithItsJoin) {
  for (const bool has_host_work : {false, true}) {
    Aside aside(*backend_);
    int num_launches = 0;
    ForkKernel fork(&aside);
    JoinKernel join(&aside);
    HostKernel host(&num_launches);
    const auto pair = backend_->Allocate(16);
    host.Bind({.inputs = {pair->data()}, .outputs = {pair->data() + 8}});
    const auto copy = [&](Stream& stream) {
      stream.CopyOnDevice(aside.from->data() + 16, aside.from->data(), 8);
    };
    const auto stream = backend_->CreateStream();
    runtime::LaunchSequence sequence(backend_.get());
    for (int i = 0; i < 2; ++i) sequence.AddCopies(copy);
    sequence.Add(&fork);
    if (has_host_work) sequence.Add(&host);
    sequence.Add(&join);
    for (int i = 0; i < 2; ++i) sequence.AddCopies(copy);
    for (int i = 0; i < 2; ++i) sequence.Launch(*stream);
    const std::vector<std::string> calls =
        CallsOf([&] { sequence.Launch(*stream); });
    EXPECT_EQ(std::ranges::count(calls, "cuGraphLaunch"),
              has_host_work ? 2 : 1);
    // what the fork copies by itself
    EXPECT_EQ(std::ranges::count(calls, "cuMemcpyDtoDAsync"),
              has_host_work ? 1 : 0);
    stream->Synchronize();
    aside.stream->Synchronize();
  }
}

// The batch of the next run travels while this one computes.
TEST_F(CudaGraphTest, InputsAreSentOneRunAhead) {
  Step step(*backend_);
  ASSERT_TRUE(step.plan->can_fill_ahead());
  float want = 0.0F;
  step.Fill(0.0F);
  for (int run = 1; run < 6; ++run) {
    step.plan->Start();
    step.Fill(static_cast<float>(run));
    step.plan->SendInputs();
    step.plan->Wait();
    EXPECT_EQ(step.output(), want) << run;
    want += 1.5F * static_cast<float>(run - 1);
  }
}

using CudaGraphDeathTest = CudaGraphTest;

// The driver keeps pinned memory closed while a copy may use it.
TEST_F(CudaGraphDeathTest, AnInputThatTravelsMayNotBeWritten) {
  Step step(*backend_);
  step.plan->SendInputs();
  EXPECT_DEATH(step.Fill(1.0F), "");
}

TEST_F(CudaGraphDeathTest, AnOutputMayNotBeReadBeforeTheRunIsOver) {
  Step step(*backend_);
  step.plan->Start();
  EXPECT_DEATH(EXPECT_EQ(step.output(), 0.0F), "");
}

// Each check of a capture finds a planted fault.
class CaptureTest : public ::testing::Test {
 protected:
  void Clear(Stream& stream) {
    stream.CopyOnDevice(to_->data(), from_->data(), 64);
  }

  const std::shared_ptr<FakeDriver> driver_ = std::make_shared<FakeDriver>();
  const std::unique_ptr<Backend> backend_ = MakeFakeCudaBackend(driver_);
  const std::unique_ptr<Buffer> from_ = backend_->Allocate(64);
  const std::unique_ptr<Buffer> to_ = backend_->Allocate(64);
  const std::unique_ptr<Buffer> pinned_ = backend_->AllocateHost(64);
  const std::unique_ptr<Stream> first_ = backend_->CreateStream();
  const std::unique_ptr<Stream> second_ = backend_->CreateStream();
  const std::unique_ptr<Event> fork_ = backend_->CreateEvent();
  const std::unique_ptr<Event> join_ = backend_->CreateEvent();
};

TEST_F(CaptureTest, ACaptureRunsNothingAndALaunchRunsItAnew) {
  std::byte* const host = pinned_->data();
  host[0] = std::byte{1};
  const auto recording = backend_->Record(
      *first_, [&] { first_->CopyToDevice(from_->data(), host, 64); });
  host[0] = std::byte{2};  // not in use yet
  recording->Launch(*first_);
  std::byte got{};
  first_->CopyToHost(&got, from_->data(), 1);
  first_->Synchronize();
  EXPECT_EQ(got, std::byte{2});
  EXPECT_THAT(driver_->problems(), IsEmpty());
}

// catches a driver that runs a fork's work without the order of its events
TEST_F(CaptureTest, AForkThatIsJoinedIsInOrder) {
  const auto recording = backend_->Record(*first_, [&] {
    first_->CopyToDevice(from_->data(), pinned_->data(), 64);
    first_->Record(*fork_);
    second_->Wait(*fork_);
    Clear(*second_);
    second_->Record(*join_);
    first_->Wait(*join_);
    first_->CopyToHost(pinned_->data(), to_->data(), 64);
  });
  for (int i = 0; i < 2; ++i) recording->Launch(*first_);
  first_->Synchronize();
  EXPECT_THAT(driver_->problems(), IsEmpty());
}

TEST_F(CaptureTest, FindsAForkThatReadsBeforeItsWriter) {
  const auto recording = backend_->Record(*first_, [&] {
    first_->Record(*fork_);
    first_->CopyToDevice(from_->data(), pinned_->data(), 64);
    second_->Wait(*fork_);
    Clear(*second_);
    second_->Record(*join_);
    first_->Wait(*join_);
  });
  recording->Launch(*first_);
  EXPECT_THAT(driver_->problems(),
              Contains("cuMemcpyDtoDAsync reads what cuMemcpyHtoDAsync writes "
                       "on another stream, without order"));
}

TEST_F(CaptureTest, FindsAForkThatIsNotJoined) {
  EXPECT_THAT(MessageOf([&] {
                backend_->Record(*first_, [&] {
                  first_->Record(*fork_);
                  second_->Wait(*fork_);
                  Clear(*second_);
                });
              }),
              HasSubstr("cuStreamEndCapture: CUDA error 904"));
}

TEST_F(CaptureTest, FindsWorkOutsideOfTheCapture) {
  backend_->Record(*first_, [&] { Clear(*second_); });
  EXPECT_THAT(
      driver_->problems(),
      ElementsAre("cuMemcpyDtoDAsync: on a stream outside of the capture"));
}

TEST_F(CaptureTest, FindsAnAllocationAndAWait) {
  EXPECT_THAT(MessageOf([&] {
                backend_->Record(*first_, [&] { backend_->Allocate(8); });
              }),
              HasSubstr("cuMemAlloc"));
  EXPECT_THAT(MessageOf([&] {
                backend_->Record(*first_, [&] { first_->Synchronize(); });
              }),
              HasSubstr("cuStreamSynchronize"));
  EXPECT_THAT(driver_->problems(),
              ElementsAre("cuMemAlloc: within a capture",
                          "cuStreamSynchronize: within a capture"));
  // the stream works again
  Clear(*first_);
  first_->Synchronize();
}

TEST_F(CaptureTest, FindsACopyFromMemoryThatIsNotPinned) {
  const std::array<std::byte, 64> host = {};
  EXPECT_THAT(MessageOf([&] {
                backend_->Record(*first_, [&] {
                  first_->CopyToDevice(from_->data(), host.data(), 64);
                });
              }),
              HasSubstr("cuMemcpyHtoDAsync"));
  EXPECT_THAT(driver_->problems(),
              ElementsAre("cuMemcpyHtoDAsync: memory of the host that is not "
                          "pinned, within a capture"));
}

// catches a graph that outlives the memory that it uses
TEST_F(CaptureTest, FindsAGraphWhoseMemoryIsGone) {
  auto buffer = backend_->Allocate(64);
  const auto recording = backend_->Record(
      *first_, [&] { first_->CopyOnDevice(to_->data(), buffer->data(), 64); });
  buffer.reset();
  EXPECT_THAT(MessageOf([&] { recording->Launch(*first_); }),
              HasSubstr("cuGraphLaunch"));
  EXPECT_EQ(driver_->problems().size(), 1U);
}

TEST_F(CaptureTest, FindsPinnedMemoryThatIsFreedTooEarly) {
  auto buffer = backend_->AllocateHost(64);
  first_->CopyToDevice(from_->data(), buffer->data(), 64);
  buffer.reset();
  EXPECT_THAT(driver_->problems(),
              ElementsAre("cuMemFreeHost: cuMemcpyHtoDAsync may still use it"));
}

}  // namespace
}  // namespace replicant::kernels
