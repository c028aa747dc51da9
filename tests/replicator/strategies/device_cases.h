#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fs.h"
#include "replicator/make_replicator.h"
#include "tests/replicator/replication_cases.h"
#include "tests/support/fake_cuda/fake_backend.h"
#include "tests/support/fake_cuda/host_nccl.h"

// Replicas on fake CUDA devices that make every kind of call.
namespace replicant::replicator {

using kernels::BackendFactory;
using testing::FakeDriver;
using testing::HostNcclOptions;
using testing::NcclWorld;

using Bytes = std::vector<std::byte>;
using Results = std::map<std::string, Bytes>;
using Collectives = ReplicationConfig::Collectives;

inline constexpr int64_t kRows = 12;

// A batch "x" f32 [rows, 3] by global row.
class FloatRows : public InputPipeline {
 public:
  explicit FloatRows(const InputContext& context)
      : rows_(context.PipelineBatchSize(kRows)),
        first_row_(context.pipeline_id * rows_),
        specs_{{"x", DType::kF32, Shape({rows_, kColumns})}} {}

  const std::vector<InputSpec>& specs() const override { return specs_; }
  NextResult Next(Clock::TimePoint /*deadline*/,
                  std::span<const MutableTensorView> batch) override {
    if (step_ == 5) return NextResult::kEnd;
    const auto x = batch[0].Span<float>();
    for (int64_t i = 0; i < rows_ * kColumns; ++i) {
      const int64_t row = first_row_ + i / kColumns;
      // no whole numbers, so that the order of a sum shows in its bits
      x[static_cast<size_t>(i)] =
          static_cast<float>((7 * row + 5 * (i % kColumns) + 3 * step_) % 11 -
                             5) /
          7.0F;
    }
    ++step_;
    return NextResult::kOk;
  }

 private:
  const int64_t rows_;
  const int64_t first_row_;
  const std::vector<InputSpec> specs_;
  int64_t step_ = 0;
};

inline std::unique_ptr<InputPipeline> MakeRows(const InputContext& context) {
  return std::make_unique<FloatRows>(context);
}

// Two dense layers trained by gradient descent, and every primitive.
inline StepOutputs EveryCall(ReplicaContext& replica, const Inputs& batch) {
  Graph& g = replica.graph();
  const int n = replica.num_replicas();
  const auto spread = [](RandomStream& stream, MutableTensorView value) {
    for (float& v : value.Span<float>()) {
      v = static_cast<float>(stream.Uniform() - 0.5);
    }
  };
  const VariableId w1 = g.AddVariable(
      {.name = "w1", .shape = Shape({kColumns, 40}), .initializer = spread});
  const VariableId w2 = g.AddVariable(
      {.name = "w2", .shape = Shape({40, 1}), .initializer = spread});
  const Output x = batch.at("x");
  const Output y =
      graph::MatMul(graph::Tanh(graph::MatMul(x, g.Read(w1))), g.Read(w2));
  const Output loss = graph::ReduceMean(
      graph::Square(graph::Sub(y, g.Scalar(0.3, DType::kF32))));
  const Optimizer sgd =
      replica.WrapOptimizer([&](const std::vector<VariableId>& parameters,
                                const std::vector<Output>& gradients) {
        return nn::Sgd(replica, "sgd", parameters, gradients,
                       g.Scalar(0.1, DType::kF32));
      });
  std::vector<Output> rows(static_cast<size_t>(n),
                           graph::ReduceSum(x, {.axes = {0}}));
  for (Output& row : rows) row = graph::Reshape(row, {1, kColumns});
  return {.values = {{"loss", replica.AllReduce(loss, ReduceOp::kMean)},
                     {"sum", replica.AllSum(x)},
                     {"min", replica.AllMin(x)},
                     {"max", replica.AllMax(x)},
                     {"prod", replica.AllReduce(x, ReduceOp::kProd)},
                     {"gathered", replica.AllGather(x)},
                     {"scattered", replica.ReduceScatter(graph::Concat(rows, 0),
                                                         ReduceOp::kSum)},
                     {"broadcast", replica.Broadcast(x, n - 1)},
                     // alone of its kind, so that it is no bucket
                     {"mean", replica.AllReduce(graph::Cast(x, DType::kBF16),
                                                ReduceOp::kMean)},
                     {"whole", replica.AllSum(graph::Cast(x, DType::kI32))}},
          .updates = {
              sgd({w1, w2}, graph::Gradients(loss, {g.Read(w1), g.Read(w2)}))}};
}

inline constexpr const char* kValues[] = {
    "loss",     "sum",       "min",       "max",  "prod",
    "gathered", "scattered", "broadcast", "mean", "whole"};

inline Bytes BytesOf(TensorView view) {
  const auto bytes = view.bytes();
  return {bytes.begin(), bytes.end()};
}

// The fake devices of one test, which must be left clean.
class Machine {
 public:
  explicit Machine(int num_devices)
      : driver_(std::make_shared<FakeDriver>(testing::FakeDriverOptions{
            .num_devices = num_devices, .host_threads_are_ordered = true})),
        world_(std::make_shared<NcclWorld>(driver_)) {}
  ~Machine() {
    EXPECT_THAT(driver_->problems(), ::testing::IsEmpty());
    EXPECT_THAT(driver_->live(), ::testing::IsEmpty());
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  FakeDriver& driver() { return *driver_; }
  NcclWorld& world() { return *world_; }
  // Backends of a process with this NCCL.
  BackendFactory Backends(const HostNcclOptions& nccl = {}) {
    return [this, nccl](std::string_view /*name*/,
                        const kernels::BackendOptions& options) {
      return testing::MakeFakeCudaBackend(
          driver_, testing::MakeHostNccl(world_, nccl), options);
    };
  }
  int64_t CountCalls(const std::string& name) const {
    const auto calls = driver_->calls();
    return std::count(calls.begin(), calls.end(), name);
  }
  size_t CountLaunches(const std::string& name) const {
    const auto launches = driver_->launches();
    return static_cast<size_t>(
        std::count(launches.begin(), launches.end(), name));
  }

 private:
  const std::shared_ptr<FakeDriver> driver_;
  const std::shared_ptr<NcclWorld> world_;
};

// Values of all steps of the first replica of this process, and its variables.
inline Results Train(const ReplicationConfig& config,
                     const BackendFactory& make_backend, int process = 0) {
  const auto replicator =
      MakeReplicator(config, /*seed=*/1, {.index = process}, make_backend);
  const auto input = replicator->MakeInput(MakeRows);
  const auto step = replicator->Build(*input, EveryCall);
  Results results;
  for (int i = 0; step->Run(kNoWait) == NextResult::kOk; ++i) {
    for (const char* name : kValues) {
      results[std::to_string(i) + name] = BytesOf(step->value(name));
    }
  }
  for (const auto& [name, variable] : replicator->variables().variables()) {
    results[name] = BytesOf(replicator->variables().Get(name).view());
  }
  return results;
}

inline ReplicationConfig InGraph(
    int replicas, std::vector<int> devices,
    Collectives collectives = Collectives::kDevice) {
  return {.strategy = &Strategy::kInGraph,
          .replicas = replicas,
          .backend = "cuda",
          .devices = std::move(devices),
          .collectives = collectives,
          .timeout_s = 60.0};
}

inline void ExpectSame(const Results& got, const Results& want) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_GT(want.size(), 40U);
  for (const auto& [name, bytes] : want) EXPECT_EQ(got.at(name), bytes) << name;
}

// A configuration of processes with a device each, over TCP.
inline ReplicationConfig BetweenGraph(ReplicationConfig config,
                                      const TemporaryFolder& folder) {
  config.strategy = &Strategy::kBetweenGraph;
  config.communicator = ReplicationConfig::Communicator::kTcp;
  config.rendezvous = (folder.path() / "meet").string();
  return config;
}

// The exceptions of the processes.
inline std::vector<std::string> MessagesOf(
    const ReplicationConfig& config,
    const std::vector<BackendFactory>& backends) {
  const TemporaryFolder folder;
  const ReplicationConfig between = BetweenGraph(config, folder);
  std::vector<std::string> messages(backends.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < backends.size(); ++i) {
    threads.emplace_back([&, i] {
      messages[i] = testing::MessageOf(
          [&] { Train(between, backends[i], static_cast<int>(i)); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return messages;
}

}  // namespace replicant::replicator
