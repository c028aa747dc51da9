#include "engine/kernels/backend.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/shape_ops.h"
#include "tests/support/message_of.h"

namespace replicant::kernels {
namespace {

using testing::MessageOf;

TEST(BackendTest, AMissingBackendIsNamed) {
  EXPECT_EQ(MessageOf([] { MakeBackend("tpu"); }),
            "MakeBackend: no backend 'tpu'; allowed: " +
                fmt::format("{}", fmt::join(BuiltBackends(), ", ")));
}

TEST(BackendTest, AMissingCudaDeviceIsSaidInOneLine) {
  const std::vector<std::string> names = BuiltBackends();
  if (std::find(names.begin(), names.end(), "cuda") != names.end()) {
    GTEST_SKIP() << "this machine has a CUDA device";
  }
  const std::string message =
      MessageOf([] { MakeBackend("cuda", {.device_index = 2}); });
  EXPECT_THAT(message,
              ::testing::AnyOf(
                  "cuda:2: this build has no CUDA backend",
                  "cuda:2: cannot load libcuda.so.1: cannot open shared object "
                  "file: No such file or directory; hint: install the NVIDIA "
                  "driver, or take the backend cpu",
                  "cuda:2: this machine has no CUDA device"));
}

// Rules for every backend on every device.
class BackendConformance : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend_ = MakeBackend(GetParam());
};

TEST_P(BackendConformance, CopiesGoThereAndBack) {
  const auto stream = backend_->CreateStream();
  const auto a = backend_->Allocate(5);
  const auto b = backend_->Allocate(5);
  EXPECT_EQ(a->size_bytes(), 5U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a->data()) % Backend::kAlignment, 0U);
  const std::string text = "hello";
  std::string back(5, ' ');
  stream->CopyToDevice(a->data(),
                       reinterpret_cast<const std::byte*>(text.data()), 5);
  stream->CopyOnDevice(b->data(), a->data(), 5);
  stream->CopyToHost(reinterpret_cast<std::byte*>(back.data()), b->data(), 5);
  stream->Synchronize();
  EXPECT_EQ(back, text);
}

TEST_P(BackendConformance, AnEventThatWasNeverRecordedDoesNotBlock) {
  const auto event = backend_->CreateEvent();
  event->Synchronize();
  const auto stream = backend_->CreateStream();
  stream->Record(*event);
  stream->Wait(*event);
  event->Synchronize();
}

TEST_P(BackendConformance, EmptyMemoryCanBeHad) {
  EXPECT_EQ(backend_->Allocate(0)->size_bytes(), 0U);
}

TEST_P(BackendConformance, AnUnknownOpIsRefusedByNameAndPlace) {
  static const graph::OpDef op{
      .name = "Mystery", .infer = [](const graph::InferContext& context) {
        return std::vector<graph::TensorType>{context.inputs[0]};
      }};
  graph::Graph g;
  const graph::Output x = g.Input("x", DType::kF32, Shape({2}));
  const graph::Output y =
      g.Add({.op = &op, .inputs = {x}}, graph::CallSite{"model.cc", 12});
  EXPECT_FALSE(backend_->SupportsOp(g, y.producer()));
  EXPECT_EQ(
      MessageOf([&] { backend_->CompileKernel(g, y.producer()); }),
      fmt::format("{} cannot run Mystery 'Mystery' (model.cc:12): there is no "
                  "kernel for this op",
                  backend_->device()));
}

INSTANTIATE_TEST_SUITE_P(Backends, BackendConformance,
                         ::testing::ValuesIn(BuiltBackends()));

}  // namespace
}  // namespace replicant::kernels
