// Replicas on the GPUs of this machine, for scripts/gpu/check. The same without
// a GPU: devices_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fs.h"
#include "base/rng.h"
#include "engine/graph/ops/conv.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/kernels/cuda/driver.h"
#include "engine/kernels/cuda_backend.h"
#include "engine/kernels/device_collectives.h"
#include "engine/runtime/executor.h"
#include "tests/learner/workloads/d4pg_replicas.h"
#include "tests/learner/workloads/image_replicas.h"
#include "tests/learner/workloads/resident_training.h"
#include "tests/support/device_requirement.h"
#include "tests/support/log_lines.h"

namespace replicant::learner {
namespace {

using kernels::DeviceCall;
using kernels::DeviceRank;
using replicator::ReplicationConfig;
using replicator::Strategy;
using ::testing::Contains;
using ::testing::HasSubstr;

int CountDevices() {
  if (kernels::NumCudaDevices() == 0) return 0;
  const auto driver = kernels::cuda::LoadDriver();
  int count = 0;
  EXPECT_EQ(driver->Init(), CUDA_SUCCESS);
  EXPECT_EQ(driver->DeviceGetCount(&count), CUDA_SUCCESS);
  return count;
}

ReplicationConfig OnDevices(int replicas, std::vector<int> devices,
                            ReplicationConfig::Collectives collectives =
                                ReplicationConfig::Collectives::kDevice) {
  return {.strategy = replicas > 1 ? &Strategy::kInGraph : &Strategy::kSingle,
          .replicas = replicas,
          .backend = "cuda",
          .devices = std::move(devices),
          .collectives = collectives,
          .timeout_s = 60.0};
}

TEST(GpuTest, ReplicasOnOneGpuLearnAsOne) {
  if (CountDevices() == 0) {
    REPLICANT_SKIP_WITHOUT("cuda", "this machine has no CUDA device");
  }
  for (const D4pgCase& c : {StateCase(DType::kF32), PixelCase(DType::kF32)}) {
    const D4pgRun one = TrainD4pg(c, OnDevices(1, {0}));
    for (const int replicas : {2, 4}) {
      const D4pgRun many = TrainD4pg(c, OnDevices(replicas, {0}));
      CheckSameLearning(c, one, many);
      // sums are in rank order on the host, too
      const D4pgRun host = TrainD4pg(
          c, OnDevices(replicas, {0}, ReplicationConfig::Collectives::kHost));
      EXPECT_EQ(many.last, host.last) << replicas;
      EXPECT_EQ(TrainD4pg(c, OnDevices(replicas, {0})).last, many.last);
    }
  }
}

TEST(GpuTest, ImageModelsOnReplicasOnOneGpuLearnAsTheReference) {
  if (CountDevices() == 0) {
    REPLICANT_SKIP_WITHOUT("cuda", "this machine has no CUDA device");
  }
  constexpr DType kType = DType::kF32;
  const Training resnet =
      ResNetTraining(kType, models::NormStatistics::kSync, /*num_steps=*/4);
  const Training sngan = SnganTraining(kType);
  using Train = std::function<ImageRun(const ReplicationConfig&)>;
  const std::vector<std::pair<const char*, Train>> models = {
      {"ResNet",
       [&](const ReplicationConfig& config) {
         return TrainImages(resnet, config, kernels::MakeBackend);
       }},
      {"SN-GAN",
       [&](const ReplicationConfig& config) {
         return TrainImages(sngan, config, kernels::MakeBackend);
       }},
      {"joint SN-GAN", [](const ReplicationConfig& config) {
         return TrainJointSngan(config, kType, kernels::MakeBackend);
       }}};
  for (const auto& [name, train] : models) {
    SCOPED_TRACE(name);
    const ImageRun reference = train({.backend = "reference"});
    for (const int replicas : {1, 2, 4}) {
      SCOPED_TRACE(replicas);
      CheckSameRun(reference, train(OnDevices(replicas, {0})), kType);
    }
  }
}

// A run of the same launches one by one, and without reading ahead.
TEST(GpuTest, GraphsGiveTheBitsOfSingleLaunches) {
  if (CountDevices() == 0) {
    REPLICANT_SKIP_WITHOUT("cuda", "this machine has no CUDA device");
  }
  for (const D4pgCase& c : {StateCase(DType::kF32), PixelCase(DType::kF32)}) {
    for (const int replicas : {1, 2}) {
      ReplicationConfig config = OnDevices(replicas, {0});
      const D4pgRun graphs = TrainD4pg(c, config);
      EXPECT_EQ(TrainD4pg(c, config).last, graphs.last);
      config.cuda_graphs = false;
      config.read_ahead = false;
      EXPECT_EQ(TrainD4pg(c, config).last, graphs.last);
    }
  }
}

// Frames that lie in the device's memory, with graphs and batches that are
// taken while a step computes.
TEST(GpuTest, ATableOfFramesChangesNoBit) {
  if (CountDevices() == 0) {
    REPLICANT_SKIP_WITHOUT("cuda", "this machine has no CUDA device");
  }
  for (const auto& [name, c] : StoredCases()) {
    SCOPED_TRACE(name);
    CheckResidentIsTheSame(c, NumDraws(12), OnDevices(1, {0}));
  }
}

// Results of cuDNN and cuBLASLt with the fastest plans on this device, and how
// a second run finds these plans.
TEST(GpuTest, TunedPlansLearnAsTheLibrariesChoice) {
  if (CountDevices() == 0) {
    REPLICANT_SKIP_WITHOUT("cuda", "this machine has no CUDA device");
  }
  for (const D4pgCase& c : {StateCase(DType::kF32), PixelCase(DType::kF32)}) {
    const TemporaryFolder folder;
    const std::filesystem::path file = folder.path() / "tuned_plans.txt";
    ReplicationConfig config = OnDevices(1, {0});
    const D4pgRun untuned = TrainD4pg(c, config);
    config.cuda_autotune = {.is_enabled = true, .cache = folder.path()};
    const D4pgRun tuned = TrainD4pg(c, config);
    CheckSameLearning(c, untuned, tuned);
    const std::string plans = ReadFile(file);
    EXPECT_GT(std::ranges::count(plans, '\n'), 1) << plans;
    // the same plans, and nothing is timed
    const testing::LogLines log(spdlog::level::info);
    EXPECT_EQ(TrainD4pg(c, config).last, tuned.last);
    EXPECT_EQ(ReadFile(file), plans);
    EXPECT_THAT(log.lines(), Not(Contains(HasSubstr(": tuned "))));
    EXPECT_THAT(log.lines(), Contains(HasSubstr(" tuned plans from ")));
  }
}

// A product of numbers in [0.5, 1) and a convolution of them.
std::vector<float> Products(kernels::Backend& backend,
                            graph::Precision precision) {
  graph::Graph g;
  const graph::Output x = g.Input("x", DType::kF32, {8, 16, 16, 32});
  const graph::Output w = g.Input("w", DType::kF32, {32, 32, 3, 3});
  const graph::Output rows = graph::Reshape(x, {2048, 32});
  const graph::Output columns = graph::Reshape(w, {32, 288});
  runtime::VariableStore store(backend, /*seed=*/1);
  runtime::Executor plan(
      g,
      {.outputs = {graph::MatMul(rows, columns), graph::Conv2d(x, w)},
       .updates = {}},
      store, {.passes = {.precision = precision}});
  for (const char* name : {"x", "w"}) {
    RandomStream random(1, name);
    for (float& value : plan.input(name).Span<float>()) {
      value = static_cast<float>(0.5 + 0.5 * random.Uniform());
    }
  }
  plan.Run();
  std::vector<float> results;
  for (size_t i = 0; i < 2; ++i) {
    const auto values = plan.output(i).Span<float>();
    results.insert(results.end(), values.begin(), values.end());
  }
  return results;
}

// The bounds are for operands that lose 13 bits, or for sums of f32.
TEST(GpuTest, Tf32RoundsNoMoreThanItsOperands) {
  if (CountDevices() == 0) {
    REPLICANT_SKIP_WITHOUT("cuda", "this machine has no CUDA device");
  }
  const auto cuda = kernels::MakeBackend("cuda");
  const auto reference = kernels::MakeBackend("reference");
  const auto exact = Products(*reference, graph::Precision::kF32);
  for (const auto& [precision, bound] :
       {std::pair{graph::Precision::kTF32, 0x1p-9},
        {graph::Precision::kF32, 288 * 0x1p-24}}) {
    const auto got = Products(*cuda, precision);
    ASSERT_EQ(got.size(), exact.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i] / exact[i], 1.0F, bound) << i;
    }
  }
}

// The library's entry points and types, with one device.
TEST(GpuTest, NcclOfOneRankGivesBackWhatItGets) {
  if (CountDevices() == 0) {
    REPLICANT_SKIP_WITHOUT("nccl", "this machine has no CUDA device");
  }
  const auto backend = kernels::MakeBackend("cuda");
  kernels::DeviceCollectives& collectives = *backend->collectives();
  RecordProperty("library", collectives.library());
  const auto rank =
      collectives.Join(collectives.NewGroup(), /*rank=*/0, /*size=*/1);
  const auto await = [&] {
    DeviceRank::Status status = rank->Poll();
    while (status.state == DeviceRank::State::kInProgress) {
      std::this_thread::yield();
      status = rank->Poll();
    }
    ASSERT_EQ(status.state, DeviceRank::State::kReady) << status.problem;
  };
  await();
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i) - 500.0F;
  }
  const size_t size = values.size() * sizeof(float);
  const auto in = backend->Allocate(size);
  const auto out = backend->Allocate(size);
  const auto stream = backend->CreateStream();
  using Kind = DeviceCall::Kind;
  for (const Kind kind : {Kind::kAllReduce, Kind::kAllGather,
                          Kind::kReduceScatter, Kind::kBroadcast}) {
    stream->CopyToDevice(
        in->data(), reinterpret_cast<const std::byte*>(values.data()), size);
    rank->Launch({.kind = kind,
                  .dtype = DType::kF32,
                  .in = in->data(),
                  .out = out->data(),
                  .count = static_cast<int64_t>(values.size())},
                 *stream);
    await();
    std::vector<float> result(values.size());
    stream->CopyToHost(reinterpret_cast<std::byte*>(result.data()), out->data(),
                       size);
    stream->Synchronize();
    EXPECT_EQ(result, values) << static_cast<int>(kind);
  }
  // the same as a graph, which is gone before its rank
  const auto recording = backend->Record(*stream, [&] {
    rank->Launch({.in = out->data(),
                  .out = in->data(),
                  .count = static_cast<int64_t>(values.size())},
                 *stream);
    await();
    stream->CopyOnDevice(out->data(), in->data(), size);
  });
  std::ranges::reverse(values);
  stream->CopyToDevice(out->data(),
                       reinterpret_cast<const std::byte*>(values.data()), size);
  for (int i = 0; i < 3; ++i) recording->Launch(*stream);
  std::vector<float> result(values.size());
  stream->CopyToHost(reinterpret_cast<std::byte*>(result.data()), in->data(),
                     size);
  stream->Synchronize();
  EXPECT_EQ(result, values);
}

TEST(GpuTest, NcclBetweenAllGpusLearnsAsOneReplica) {
  const int num_devices = CountDevices();
  if (num_devices < 2) {
    REPLICANT_SKIP_WITHOUT("nccl", "this machine has " << num_devices
                                                       << " CUDA devices, "
                                                          "want 2 or more");
  }
  for (const D4pgCase& c : {StateCase(DType::kF32), PixelCase(DType::kF32)}) {
    const D4pgRun one = TrainD4pg(c, OnDevices(1, {0}));
    for (int replicas = 2; replicas <= num_devices; replicas *= 2) {
      const D4pgRun many = TrainD4pg(c, OnDevices(replicas, {}));
      CheckSameLearning(c, one, many);
      EXPECT_EQ(TrainD4pg(c, OnDevices(replicas, {})).last, many.last);
    }
  }
}

}  // namespace
}  // namespace replicant::learner
