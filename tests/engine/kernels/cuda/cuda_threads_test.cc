// Several threads with one CUDA backend, or with one each. Races show under
// ThreadSanitizer (scripts/test).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/norm.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/graph/ops/reduce.h"
#include "engine/kernels/cuda/device.h"
#include "engine/kernels/device_collectives.h"
#include "engine/runtime/executor.h"
#include "tests/support/fake_cuda/fake_backend.h"
#include "tests/support/fake_cuda/host_nccl.h"

namespace replicant::kernels {
namespace {

using testing::FakeDriver;
using ::testing::IsEmpty;

constexpr int kThreads = 4;
constexpr int64_t kCount = 1000;

// Runs `work(0)` to `work(kThreads - 1)` at once.
void InThreads(const std::function<void(int)>& work) {
  std::latch start(kThreads);
  std::vector<std::jthread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      work(i);
    });
  }
}

// Losses of some steps: launched one by one, recorded, then as a graph.
std::vector<float> Train(Backend& backend) {
  graph::Graph g;
  const graph::VariableId w = g.AddVariable({.name = "w", .shape = {8, 4}});
  const graph::VariableId c = g.AddVariable({.name = "c", .shape = {4}});
  const graph::Output x = g.Input("x", DType::kF32, {3, 8});
  const graph::Output y = graph::Tanh(
      graph::LayerNorm(graph::MatMul(x, g.Read(w)), g.Read(c), g.Read(c)));
  const graph::Output loss = graph::ReduceSum(
      graph::Square(graph::Sub(y, g.Scalar(0.5, DType::kF32))));
  const auto gradients = graph::Gradients(loss, {g.Read(w), g.Read(c)});
  const graph::Output update =
      graph::SgdUpdate({w, c}, {}, gradients, g.Scalar(0.1, DType::kF32),
                       g.Scalar(1.0, DType::kF32));
  runtime::VariableStore store(backend, /*seed=*/1);
  runtime::Executor plan(g, {.outputs = {loss}, .updates = {update}}, store);
  std::vector<float> losses;
  for (int step = 0; step < 4; ++step) {
    float value = 0.25F;
    for (float& v : plan.input("x").Span<float>()) v = value += 0.5F;
    plan.Run();
    losses.push_back(plan.output(0).Span<float>()[0]);
  }
  return losses;
}

// Buffers and streams of one device.
class Rows {
 public:
  explicit Rows(Backend& backend)
      : backend_(&backend), stream_(backend.CreateStream()) {}

  Stream& stream() { return *stream_; }
  std::unique_ptr<Buffer> Make(const std::vector<float>& values) {
    auto buffer = backend_->Allocate(values.size() * sizeof(float));
    stream_->CopyToDevice(buffer->data(),
                          reinterpret_cast<const std::byte*>(values.data()),
                          buffer->size_bytes());
    stream_->Synchronize();
    return buffer;
  }
  std::vector<float> Read(Buffer& buffer) {
    std::vector<float> values(buffer.size_bytes() / sizeof(float));
    stream_->CopyToHost(reinterpret_cast<std::byte*>(values.data()),
                        buffer.data(), buffer.size_bytes());
    stream_->Synchronize();
    return values;
  }

 private:
  Backend* const backend_;
  const std::unique_ptr<Stream> stream_;
};

class CudaThreadsTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_THAT(driver_->problems(), IsEmpty());
    EXPECT_THAT(driver_->live(), IsEmpty());
  }

  const std::shared_ptr<FakeDriver> driver_ =
      std::make_shared<FakeDriver>(testing::FakeDriverOptions{
          .num_devices = kThreads, .host_threads_are_ordered = true});
};

// Counts its calls. Every source is the own kernels.
class CountingCompiler : public cuda::SourceCompiler {
 public:
  std::string Compile(const std::string& source,
                      int /*compute_capability*/) override {
    ++num_calls_;
    return source;
  }
  int num_calls() const { return num_calls_; }

 private:
  std::atomic<int> num_calls_ = 0;
};

TEST_F(CudaThreadsTest, EachSourceIsCompiledOnce) {
  const auto compiler = std::make_shared<CountingCompiler>();
  cuda::FunctionCache cache(std::make_shared<const cuda::Device>(
      cuda::Libraries{.driver = driver_,
                      .compiler = compiler,
                      .matmul = nullptr,
                      .convolution = nullptr,
                      .nccl = nullptr},
      /*index=*/0));
  constexpr int kSources = 10;
  InThreads([&](int /*i*/) {
    for (int source = 0; source < kSources; ++source) {
      EXPECT_NE(cache.Get(std::to_string(source), "fill_32")->get(), nullptr);
    }
  });
  EXPECT_EQ(compiler->num_calls(), kSources);
}

// They compile the same source, and record at the same time.
TEST_F(CudaThreadsTest, PlansOfSeveralThreadsShareABackend) {
  const auto backend = testing::MakeFakeCudaBackend(driver_);
  std::array<std::vector<float>, kThreads> losses;
  InThreads([&](int i) { losses[static_cast<size_t>(i)] = Train(*backend); });
  EXPECT_LT(losses[0].back(), losses[0].front());
  for (const auto& other : losses) EXPECT_EQ(other, losses[0]);
}

TEST_F(CudaThreadsTest, ThreadsReduceTheirPartsOnOneDevice) {
  const auto backend = testing::MakeFakeCudaBackend(driver_);
  Rows rows(*backend);
  const auto a = rows.Make(std::vector<float>(kCount, 3.0F));
  const auto b = rows.Make(std::vector<float>(kCount, 4.0F));
  const auto out = rows.Make(std::vector<float>(kCount, 0.0F));
  std::array<std::unique_ptr<Stream>, kThreads> streams;
  for (auto& stream : streams) stream = backend->CreateStream();
  InThreads([&](int i) {
    Stream& stream = *streams[static_cast<size_t>(i)];
    const std::array<const std::byte*, 2> inputs = {a->data(), b->data()};
    const std::array<std::byte*, 1> outputs = {out->data()};
    backend->collectives()->Reduce(DeviceReduceOp::kSum, DType::kF32, inputs,
                                   outputs, kCount / kThreads * i,
                                   kCount / kThreads * (i + 1), stream);
    stream.Synchronize();
  });
  EXPECT_EQ(rows.Read(*out), std::vector<float>(kCount, 7.0F));
}

// One thread for each rank, and one that watches all of them.
TEST_F(CudaThreadsTest, RanksOfSeveralThreadsReduceBetweenTheirDevices) {
  const auto world = std::make_shared<testing::NcclWorld>(driver_);
  std::vector<std::unique_ptr<Backend>> backends;
  std::vector<std::unique_ptr<DeviceRank>> ranks;
  backends.reserve(kThreads);
  ranks.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    backends.push_back(testing::MakeFakeCudaBackend(
        driver_, testing::MakeHostNccl(world), /*device_index=*/i));
  }
  const std::string group = backends[0]->collectives()->NewGroup();
  for (int i = 0; i < kThreads; ++i) {
    ranks.push_back(backends[static_cast<size_t>(i)]->collectives()->Join(
        group, /*rank=*/i, kThreads));
  }
  std::atomic<bool> is_over = false;
  std::jthread watcher([&] {
    while (!is_over) {
      for (const auto& rank : ranks) {
        EXPECT_NE(rank->Poll().state, DeviceRank::State::kFailed);
      }
      std::this_thread::yield();
    }
  });
  InThreads([&](int i) {
    const auto index = static_cast<size_t>(i);
    Rows rows(*backends[index]);
    const auto buffer = rows.Make(std::vector<float>(kCount, 1.0F));
    float want = 1.0F;
    for (int call = 0; call < 5; ++call) {
      ranks[index]->Launch({.kind = DeviceCall::Kind::kAllReduce,
                            .dtype = DType::kF32,
                            .in = buffer->data(),
                            .out = buffer->data(),
                            .count = kCount},
                           rows.stream());
      while (ranks[index]->Poll().state == DeviceRank::State::kInProgress) {
        std::this_thread::yield();
      }
      want *= kThreads;
      EXPECT_EQ(rows.Read(*buffer), std::vector<float>(kCount, want));
    }
  });
  is_over = true;
  watcher.join();
  for (const auto& rank : ranks) rank->Leave();
}

}  // namespace
}  // namespace replicant::kernels
