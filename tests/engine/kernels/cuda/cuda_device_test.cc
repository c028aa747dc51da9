// The CUDA backend's messages and order of calls, on a driver without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/error.h"
#include "engine/graph/gradients.h"
#include "engine/graph/ops/losses.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/pool.h"
#include "engine/graph/ops/reduce.h"
#include "engine/kernels/cuda/device.h"
#include "engine/runtime/executor.h"
#include "tests/support/fake_cuda/fake_backend.h"
#include "tests/support/fake_cuda/host_compiler.h"
#include "tests/support/message_of.h"

namespace replicant::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using testing::FakeDriver;
using testing::FakeDriverOptions;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeFakeCudaBackend;
using testing::MessageOf;

std::string MessageFrom(const FakeDriverOptions& options, int index = 0) {
  const auto driver = std::make_shared<FakeDriver>(options);
  return MessageOf([&] { MakeFakeCudaBackend(driver, index); });
}

TEST(CudaDeviceTest, AMissingDeviceIsSaidInOneLine) {
  EXPECT_EQ(MessageFrom({.num_devices = 0}),
            "cuda:0: this machine has no CUDA device");
  EXPECT_EQ(MessageFrom({.init_result = CUDA_ERROR_NO_DEVICE}),
            "cuda:0: this machine has no CUDA device");
}

TEST(CudaDeviceTest, AnIndexOutOfRangeNamesTheRange) {
  EXPECT_EQ(MessageFrom({.num_devices = 1}, 1),
            "cuda:1: no such device; this machine has cuda:0");
  EXPECT_EQ(MessageFrom({.num_devices = 4}, 7),
            "cuda:7: no such device; this machine has cuda:0 to cuda:3");
  EXPECT_EQ(MessageFrom({.num_devices = 4}, -1),
            "cuda:-1: no such device; this machine has cuda:0 to cuda:3");
}

TEST(CudaDeviceTest, AnOldDriverIsRefused) {
  EXPECT_EQ(MessageFrom({.driver_version = 12080}),
            "cuda:0: the driver supports CUDA 12.8, want 13.0 or newer; hint: "
            "update the NVIDIA driver");
}

TEST(CudaDeviceTest, TooLittleMemoryNamesWhatIsFree) {
  const auto driver = std::make_shared<FakeDriver>(
      FakeDriverOptions{.memory_size_bytes = 1000});
  const auto backend = MakeFakeCudaBackend(driver);
  const auto first = backend->Allocate(600);
  EXPECT_EQ(MessageOf([&] { backend->Allocate(401); }),
            "cuda:0: cannot allocate 401 bytes; 400 of 1000 bytes are free");
  EXPECT_EQ(backend->Allocate(400)->size_bytes(), 400U);
}

TEST(CudaDeviceTest, PlacesInAWideWindowAreRefused) {
  const auto backend = MakeFakeCudaBackend(std::make_shared<FakeDriver>());
  graph::Graph g;
  const graph::Output x = g.Input("x", DType::kF32, {1, 256, 256, 1});
  const graph::Output y = graph::MaxPool2d(x, {.window = 256, .stride = 256});
  EXPECT_TRUE(backend->SupportsOp(g, y.producer()));
  const graph::Output dx = graph::Gradients(graph::ReduceSum(y), {x})[0];
  EXPECT_THAT(
      MessageOf([&] { backend->CompileKernel(g, dx.producer()); }),
      EndsWith("it takes windows of at most 255 x 255 pixels, got 256"));
}

TEST(CudaDeviceTest, APlanThatDoesNotFitNamesItsLargestTensors) {
  const auto driver = std::make_shared<FakeDriver>(
      FakeDriverOptions{.memory_size_bytes = 20000});
  const auto backend = MakeFakeCudaBackend(driver);
  graph::Graph g;
  const graph::Output x = g.Input("x", DType::kF32, {64, 32});
  const graph::VariableId w = g.AddVariable({.name = "w", .shape = {32, 16}});
  const graph::Output y = graph::Softmax(graph::MatMul(x, g.Read(w)));
  runtime::VariableStore store(*backend, /*seed=*/1);
  // the boundary is x twice, once to land, and y
  EXPECT_EQ(MessageOf([&] {
              runtime::Executor(g, {.outputs = {y}, .updates = {}}, store);
            }),
            "cuda:0: cannot allocate 8192 bytes; 1568 of 20000 bytes are free; "
            "the plan needs 24768 bytes for itself (intermediate 4096, scratch "
            "192, constants 0, boundary 20480) and 2048 for variables; its "
            "largest tensors: MatMul f32[64,16] 4096 bytes");
}

TEST(CudaDeviceTest, AFailedCallIsNamed) {
  const auto driver = std::make_shared<FakeDriver>();
  const auto backend = MakeFakeCudaBackend(driver);
  const auto stream = backend->CreateStream();
  // the context is made current first
  driver->FailCall(driver->calls().size() + 1, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(MessageOf([&] { stream->Synchronize(); }),
            "cuda:0: cuStreamSynchronize: CUDA_ERROR_UNKNOWN: unknown error");
}

// The fake driver's checks work: each finds a planted fault.
class FakeDriverTest : public ::testing::Test {
 protected:
  void Write(Stream& stream, Buffer& buffer) {
    stream.CopyToDevice(buffer.data(), bytes_, sizeof bytes_);
  }
  void Read(Stream& stream, Buffer& buffer) {
    stream.CopyToHost(bytes_, buffer.data(), sizeof bytes_);
  }

  const std::shared_ptr<FakeDriver> driver_ = std::make_shared<FakeDriver>();
  const std::unique_ptr<Backend> backend_ = MakeFakeCudaBackend(driver_);
  const std::unique_ptr<Buffer> buffer_ = backend_->Allocate(64);
  const std::unique_ptr<Stream> first_ = backend_->CreateStream();
  const std::unique_ptr<Stream> second_ = backend_->CreateStream();
  const std::unique_ptr<Event> event_ = backend_->CreateEvent();
  std::byte bytes_[64] = {};
};

TEST_F(FakeDriverTest, FindsAReadThatNothingOrdersAfterAWrite) {
  Write(*first_, *buffer_);
  Read(*second_, *buffer_);
  EXPECT_THAT(driver_->problems(),
              ElementsAre("cuMemcpyDtoHAsync reads what cuMemcpyHtoDAsync "
                          "writes on another stream, without order"));
}

TEST_F(FakeDriverTest, FindsAWriteThatNothingOrdersAfterARead) {
  Write(*first_, *buffer_);
  first_->Synchronize();
  Read(*first_, *buffer_);
  Write(*second_, *buffer_);
  EXPECT_THAT(driver_->problems(),
              ElementsAre("cuMemcpyHtoDAsync writes what cuMemcpyDtoHAsync "
                          "reads on another stream, without order"));
}

TEST_F(FakeDriverTest, AnEventOrdersTwoStreams) {
  Write(*first_, *buffer_);
  first_->Record(*event_);
  second_->Wait(*event_);
  Read(*second_, *buffer_);
  EXPECT_THAT(driver_->problems(), IsEmpty());
}

// An event marks what came before it was recorded, and nothing later.
TEST_F(FakeDriverTest, AnEventDoesNotOrderWhatComesAfterIt) {
  first_->Record(*event_);
  Write(*first_, *buffer_);
  second_->Wait(*event_);
  Read(*second_, *buffer_);
  EXPECT_EQ(driver_->problems().size(), 1U);
}

TEST_F(FakeDriverTest, ASynchronisationOrdersTwoStreams) {
  Write(*first_, *buffer_);
  first_->Synchronize();
  Read(*second_, *buffer_);
  EXPECT_THAT(driver_->problems(), IsEmpty());
}

TEST_F(FakeDriverTest, FindsAnOperandThatLeavesItsAllocation) {
  const std::byte host[65] = {};
  EXPECT_THAT(
      MessageOf([&] { first_->CopyToDevice(buffer_->data(), host, 65); }),
      HasSubstr("cuMemcpyHtoDAsync: CUDA error 700"));
  EXPECT_THAT(driver_->problems(),
              ElementsAre("cuMemcpyHtoDAsync: an operand of 65 bytes lies in "
                          "no allocation"));
}

TEST_F(FakeDriverTest, ListsWhatIsNotDestroyed) {
  EXPECT_THAT(driver_->live(),
              ElementsAre("64 bytes of memory", "2 streams", "1 events",
                          "1 modules", "1 contexts"));
}

using FakeDriverDeathTest = FakeDriverTest;

TEST_F(FakeDriverDeathTest, TheHostMayNotTouchDeviceMemory) {
  Write(*first_, *buffer_);
  EXPECT_DEATH(*buffer_->data() = std::byte{1}, "");
}

#ifdef __SANITIZE_ADDRESS__

// The buffer is larger than what the launch declares of it.
TEST_F(FakeDriverDeathTest, AGeneratedKernelMayNotLeaveItsOperands) {
  const std::string image = testing::MakeHostSourceCompiler()->Compile(
      "extern \"C\" void leave(const void* argument, long long /*count*/) {\n"
      "  float* const x = *static_cast<float* const*>(argument);\n"
      "  x[0] = x[1];\n"
      "}\n",
      /*compute_capability=*/90);
  CUmodule module = nullptr;
  ASSERT_EQ(driver_->ModuleLoadData(&module, image.c_str()), CUDA_SUCCESS);
  cuda::KernelLaunch launch{.count = 1};
  ASSERT_EQ(driver_->ModuleGetFunction(&launch.function, module, "leave"),
            CUDA_SUCCESS);
  const std::byte* const argument = buffer_->data();
  launch.argument = &argument;
  launch.argument_size_bytes = sizeof argument;
  const cuda::MemoryRange ranges[] = {
      {cuda::AddressOf(argument), sizeof(float)}};
  launch.writes = ranges;
  EXPECT_DEATH(
      {
        static_cast<void>(
            driver_->LaunchKernel(launch, cuda::HandleOf(*first_)));
      },
      "use-after-poison");
  EXPECT_EQ(driver_->ModuleUnload(module), CUDA_SUCCESS);
}

#endif

}  // namespace
}  // namespace replicant::kernels
