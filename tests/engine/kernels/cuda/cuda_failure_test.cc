// Every call of the CUDA backend to the outside fails once.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "base/error.h"
#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/norm.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/graph/ops/reduce.h"
#include "engine/runtime/executor.h"
#include "tests/support/fake_cuda/fake_backend.h"

namespace replicant::kernels {
namespace {

using testing::FakeDriver;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Training steps with every kind of call: copies, library, own and generated
// kernels, an update; launched one by one, then recorded, then as a graph.
void TrainOnce(const std::shared_ptr<FakeDriver>& driver) {
  const auto backend = testing::MakeFakeCudaBackend(driver);
  graph::Graph g;
  const graph::VariableId w = g.AddVariable({.name = "w", .shape = {8, 4}});
  const graph::VariableId c = g.AddVariable({.name = "c", .shape = {4}});
  const graph::Output x = g.Input("x", DType::kF32, {3, 8});
  const graph::Output h = graph::MatMul(x, g.Read(w));
  const graph::Output y =
      graph::Tanh(graph::LayerNorm(h, g.Read(c), g.Read(c)));
  const graph::Output loss = graph::ReduceSum(graph::Square(y));
  const auto gradients = graph::Gradients(loss, {g.Read(w), g.Read(c)});
  const graph::Output update =
      graph::SgdUpdate({w, c}, {}, gradients, g.Scalar(0.1, DType::kF32),
                       g.Scalar(1.0, DType::kF32));
  runtime::VariableStore store(*backend, /*seed=*/1);
  runtime::Executor plan(g, {.outputs = {loss}, .updates = {update}}, store);
  for (int i = 0; i < 3; ++i) plan.Run();
  const auto event = backend->CreateEvent();
  const auto stream = backend->CreateStream();
  stream->Record(*event);
  stream->Wait(*event);
  event->Synchronize();
  stream->Synchronize();
  store.Get("w");
}

// A plan whose inputs are sent while the run before computes, sent and taken
// back, and sent once more.
void RunAhead(const std::shared_ptr<FakeDriver>& driver) {
  const auto backend = testing::MakeFakeCudaBackend(driver);
  graph::Graph g;
  const graph::Output x = g.Input("x", DType::kF32, {3, 8});
  const graph::Output sum = graph::ReduceSum(graph::Tanh(x));
  runtime::VariableStore store(*backend, /*seed=*/1);
  runtime::Executor plan(g, {.outputs = {sum}, .updates = {}}, store);
  const auto fill = [&](float value) {
    std::ranges::fill(plan.input("x").Span<float>(), value);
  };
  fill(1.0F);
  for (int i = 0; i < 3; ++i) {
    plan.Start();
    fill(2.0F);
    plan.SendInputs();
    plan.Wait();
  }
  plan.RecallInputs();
  fill(3.0F);
  plan.SendInputs();
  plan.Start();
  plan.Wait();
}

bool IsCleanup(const std::string& call) {
  return call == "cuMemFree" || call == "cuMemFreeHost" ||
         call == "cuModuleUnload" || call == "cuDevicePrimaryCtxRelease" ||
         call == "cuStreamDestroy" || call == "cuEventDestroy" ||
         call == "cuGraphDestroy" || call == "cuGraphExecDestroy";
}

// A call of `work` that fails ends in an exception that names it, and nothing
// is left behind. A cleanup that fails has nobody to tell. Returns the names of
// the calls that have been told.
template <typename Work>
std::set<std::string> FailEachCall(const Work& work) {
  const auto whole = std::make_shared<FakeDriver>();
  work(whole);
  const std::vector<std::string> calls = whole->calls();
  std::set<std::string> failed;
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto driver = std::make_shared<FakeDriver>();
    driver->FailCall(i, CUDA_ERROR_UNKNOWN);
    std::string message;
    try {
      work(driver);
    } catch (const DeviceError& e) {
      message = e.what();
    }
    EXPECT_GT(driver->calls().size(), i);
    EXPECT_EQ(driver->calls()[i], calls[i]) << "call " << i;
    // the context is made current for a cleanup, too
    const bool may_pass = IsCleanup(calls[i]) ||
                          (calls[i] == "cuCtxSetCurrent" &&
                           i + 1 < calls.size() && IsCleanup(calls[i + 1]));
    if (!may_pass) {
      EXPECT_THAT(message, HasSubstr("CUDA_ERROR_UNKNOWN: unknown error"))
          << "call " << i << ", " << calls[i];
      failed.insert(calls[i]);
    }
    EXPECT_THAT(driver->live(), IsEmpty()) << "call " << i << ", " << calls[i];
    EXPECT_THAT(driver->problems(), IsEmpty())
        << "call " << i << ", " << calls[i];
  }
  return failed;
}

TEST(CudaFailureTest, EachCallThatFailsIsNamedAndLeavesNothing) {
  const std::set<std::string> failed = FailEachCall(TrainOnce);
  // catches a step that lost a kind of call
  for (const char* call :
       {"cuInit", "cuMemAlloc", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync",
        "cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel", "matmul",
        "cuStreamWaitEvent", "cuEventSynchronize", "cuStreamSynchronize",
        "cuMemHostAlloc", "cuStreamBeginCapture", "cuStreamEndCapture",
        "cuGraphInstantiate", "cuGraphLaunch"}) {
    EXPECT_TRUE(failed.contains(call)) << call;
  }
}

TEST(CudaFailureTest, EachCallOfARunAheadThatFailsIsNamedAndLeavesNothing) {
  const std::set<std::string> failed = FailEachCall(RunAhead);
  for (const char* call :
       {"cuMemHostAlloc", "cuMemcpyHtoDAsync", "cuMemcpyDtoDAsync",
        "cuEventRecord", "cuStreamWaitEvent", "cuEventSynchronize",
        "cuGraphLaunch", "cuStreamSynchronize"}) {
    EXPECT_TRUE(failed.contains(call)) << call;
  }
}

}  // namespace
}  // namespace replicant::kernels
