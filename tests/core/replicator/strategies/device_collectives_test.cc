// Replicas on CUDA devices exchange tensors on the devices: by NCCL, or by a
// kernel where they share one. Without a GPU (tests/support/fake_cuda).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/fs.h"
#include "core/comm/thread_communicator.h"
#include "core/replicator/graph/device_communicator.h"
#include "core/replicator/strategies/device_team.h"
#include "tests/core/replicator/replication_cases.h"
#include "tests/support/fake_cuda/fake_backend.h"
#include "tests/support/fake_cuda/host_nccl.h"

namespace replicant::replicator {
namespace {

using kernels::BackendFactory;
using ::testing::AllOf;
using ::testing::Contains;
using testing::FakeDriver;
using ::testing::HasSubstr;
using testing::HostNcclOptions;
using ::testing::IsEmpty;
using testing::MessageOf;
using testing::NcclWorld;
using ::testing::Not;
using ::testing::StartsWith;

using Bytes = std::vector<std::byte>;
using Results = std::map<std::string, Bytes>;
using Collectives = ReplicationConfig::Collectives;

constexpr int64_t kRows = 12;

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

std::unique_ptr<InputPipeline> MakeRows(const InputContext& context) {
  return std::make_unique<FloatRows>(context);
}

// Two dense layers trained by gradient descent, and every primitive.
StepOutputs EveryCall(ReplicaContext& replica, const Inputs& batch) {
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
        return nn::Sgd(g, "sgd", parameters, gradients,
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

constexpr const char* kValues[] = {"loss", "sum",      "min",       "max",
                                   "prod", "gathered", "scattered", "broadcast",
                                   "mean", "whole"};

Bytes BytesOf(TensorView view) {
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
    EXPECT_THAT(driver_->problems(), IsEmpty());
    EXPECT_THAT(driver_->live(), IsEmpty());
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
          driver_, testing::MakeHostNccl(world_, nccl), options.device_index);
    };
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
Results Train(const ReplicationConfig& config,
              const BackendFactory& make_backend, int process = 0) {
  const auto replicator =
      Replicator::Create(config, /*seed=*/1, {.index = process}, make_backend);
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

ReplicationConfig InGraph(int replicas, std::vector<int> devices,
                          Collectives collectives = Collectives::kDevice) {
  return {.strategy = &Strategy::kInGraph,
          .replicas = replicas,
          .backend = "cuda",
          .devices = std::move(devices),
          .collectives = collectives,
          .timeout_s = 60.0};
}

void ExpectSame(const Results& got, const Results& want) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_GT(want.size(), 40U);
  for (const auto& [name, bytes] : want) EXPECT_EQ(got.at(name), bytes) << name;
}

// The host's collectives are the model: all reduce in rank order.
TEST(DeviceCollectivesTest, OneDeviceGivesTheBitsOfTheHost) {
  for (const int replicas : {2, 3, 4}) {
    Machine machine(1);
    const Results host =
        Train(InGraph(replicas, {0}, Collectives::kHost), machine.Backends());
    EXPECT_EQ(machine.CountLaunches("combine_replicas_f32"), 0U);
    const Results device = Train(InGraph(replicas, {0}), machine.Backends());
    ExpectSame(device, host);
    EXPECT_GT(machine.CountLaunches("combine_replicas_f32"), 0U);
    // no NCCL, which refuses replicas on one device
    EXPECT_EQ(machine.CountLaunches("ncclAllReduce"), 0U);
    // again, to the bit
    ExpectSame(Train(InGraph(replicas, {0}), machine.Backends()), device);
  }
}

TEST(DeviceCollectivesTest, SeveralDevicesGiveTheBitsOfTheHost) {
  for (const int replicas : {2, 4}) {
    Machine machine(replicas);
    const Results host =
        Train(InGraph(replicas, {}, Collectives::kHost), machine.Backends());
    EXPECT_EQ(machine.CountLaunches("ncclAllReduce"), 0U);
    ExpectSame(Train(InGraph(replicas, {}), machine.Backends()), host);
    for (const char* call : {"ncclAllReduce", "ncclAllGather",
                             "ncclReduceScatter", "ncclBroadcast"}) {
      EXPECT_GT(machine.CountLaunches(call), 0U) << call;
    }
    EXPECT_EQ(machine.CountLaunches("combine_replicas_f32"), 0U);
    EXPECT_EQ(machine.world().num_leaving(), replicas);
  }
}

TEST(DeviceCollectivesTest, GradientsOfBf16HaveTheBitsOfTheHost) {
  Machine machine(1);
  ReplicationConfig config = InGraph(3, {0}, Collectives::kHost);
  config.wire = DType::kBF16;
  const Results host = Train(config, machine.Backends());
  config.collectives = Collectives::kDevice;
  ExpectSame(Train(config, machine.Backends()), host);
  EXPECT_GT(machine.CountLaunches("pack_bucket_f32_bf16"), 0U);
}

// Gradients do not leave the device: a step copies to the host what is fetched,
// which is recorded once, and nothing else.
TEST(DeviceCollectivesTest, NoCallPassesThroughTheHost) {
  const auto count_copies = [](Collectives collectives) {
    Machine machine(2);
    Train(InGraph(2, {}, collectives), machine.Backends());
    const auto calls = machine.driver().calls();
    return std::count(calls.begin(), calls.end(), "cuMemcpyDtoHAsync");
  };
  // 2 replicas, 5 steps; a call through the host copies in each of them, and
  // there are at least 9
  EXPECT_LT(count_copies(Collectives::kDevice), 2 * 5);
  EXPECT_GE(count_copies(Collectives::kHost), 2 * 5 * 9);
}

// Each process with a device of its own, over TCP.
TEST(DeviceCollectivesTest, ProcessesGiveTheBitsOfOneProcess) {
  Machine machine(2);
  const Results one = Train(InGraph(2, {}), machine.Backends());
  const TemporaryFolder folder;
  ReplicationConfig config{
      .strategy = &Strategy::kBetweenGraph,
      .replicas = 2,
      .backend = "cuda",
      .timeout_s = 60.0,
      .communicator = ReplicationConfig::Communicator::kTcp,
      .rendezvous = (folder.path() / "meet").string()};
  const size_t before = machine.CountLaunches("ncclAllReduce");
  std::thread second([&] { Train(config, machine.Backends(), /*process=*/1); });
  const Results first = Train(config, machine.Backends(), /*process=*/0);
  second.join();
  // ranks of one step, and steps
  EXPECT_EQ(machine.CountLaunches("ncclAllReduce"), 2 * before);
  ExpectSame(first, one);
}

// What both processes throw.
std::vector<std::string> MessagesOf(
    ReplicationConfig config, const std::vector<BackendFactory>& backends) {
  const TemporaryFolder folder;
  config.strategy = &Strategy::kBetweenGraph;
  config.communicator = ReplicationConfig::Communicator::kTcp;
  config.rendezvous = (folder.path() / "meet").string();
  std::vector<std::string> messages(backends.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < backends.size(); ++i) {
    threads.emplace_back([&, i] {
      messages[i] =
          MessageOf([&] { Train(config, backends[i], static_cast<int>(i)); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return messages;
}

TEST(DeviceCollectivesTest, AMissingLibrarySaysWhatToDo) {
  Machine machine(2);
  const std::string missing = "cannot load libnccl.so.2: no such file";
  EXPECT_EQ(MessageOf<DeviceError>([&] {
              Train(InGraph(2, {}), machine.Backends({.missing = missing}));
            }),
            "cuda:0: " + missing);
  // of one process: all say it
  const auto messages =
      MessagesOf(InGraph(2, {}),
                 {machine.Backends(), machine.Backends({.missing = missing})});
  EXPECT_EQ(messages[0], "process 1: cuda:1: " + missing);
  EXPECT_EQ(messages[1], "cuda:1: " + missing);
}

TEST(DeviceCollectivesTest, DifferentLibrariesAreRefused) {
  Machine machine(2);
  for (const std::string& message : MessagesOf(
           InGraph(2, {}),
           {machine.Backends(), machine.Backends({.version = "2.27.3"})})) {
    EXPECT_EQ(message,
              "process 0 has NCCL 2.28.9, process 1 has NCCL 2.27.3; hint: "
              "install the same on all hosts, or set "
              "learner.replication.collectives: host");
  }
}

TEST(DeviceCollectivesTest, LayoutsThatNoLibraryTakesAreRefused) {
  Machine machine(2);
  const std::string refusal =
      "; allowed: each on a device of its own, or all of one process on one; "
      "hint: set learner.replication.devices, or collectives: host";
  EXPECT_EQ(MessageOf<ConfigError>([&] {
              Train(InGraph(4, {0, 1}), machine.Backends());
            }),
            "replication: replicas 0 and 2 of 4 are on one device" + refusal);
  // two processes
  for (const std::string& message :
       MessagesOf(InGraph(2, {0}), {machine.Backends(), machine.Backends()})) {
    EXPECT_EQ(message,
              "replication: replicas 0 and 1 of 2 are on one device" + refusal);
  }
  EXPECT_THAT(MessageOf<DeviceError>(
                  [&] { Train(InGraph(3, {}), machine.Backends()); }),
              StartsWith("cuda:2: no such device; this machine has cuda:0 to "
                         "cuda:1"));
}

TEST(DeviceCollectivesTest, AFailureOfTheLibraryNamesTheRankAndEndsAll) {
  Machine machine(2);
  const auto replicator =
      Replicator::Create(InGraph(2, {}), /*seed=*/1, {}, machine.Backends());
  const auto input = replicator->MakeInput(MakeRows);
  const auto step = replicator->Build(*input, EveryCall);
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  machine.world().FailRank(1, "remote error: connection closed");
  EXPECT_THAT(
      MessageOf<CommError>([&] { static_cast<void>(step->Run(kNoWait)); }),
      AllOf(HasSubstr("rank 1 of 2 (cuda:1)"),
            HasSubstr("remote error: connection closed")));
  EXPECT_THAT(machine.world().aborted(), ::testing::ElementsAre(0, 1));
  // and does not come back
  EXPECT_THAT(
      MessageOf<CommError>([&] { static_cast<void>(step->Run(kNoWait)); }),
      HasSubstr("remote error: connection closed"));
}

// A replica that fails on its own lets no other wait for it.
TEST(DeviceCollectivesTest, AReplicaThatFailsEndsTheOthers) {
  for (const int num_devices : {1, 2}) {
    Machine machine(num_devices);
    std::vector<int> devices;
    if (num_devices == 1) devices = {0};
    const auto replicator = Replicator::Create(InGraph(2, devices), /*seed=*/1,
                                               {}, machine.Backends());
    const auto input = replicator->MakeInput(MakeRows);
    const auto step = replicator->Build(*input, EveryCall);
    ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
    machine.driver().FailCall(machine.driver().calls().size() + 40,
                              CUDA_ERROR_UNKNOWN);
    EXPECT_THAT(MessageOf([&] { static_cast<void>(step->Run(kNoWait)); }),
                AllOf(HasSubstr("cuda:"), HasSubstr("CUDA_ERROR_UNKNOWN")));
  }
}

// A device that waits for a replica that is gone: its step does not end.
TEST(DeviceCollectivesTest, AStepThatDoesNotEndIsAborted) {
  Machine machine(2);
  const auto hosts = comm::MakeThreadCommunicators(2);
  std::vector<std::unique_ptr<kernels::Backend>> backends;
  std::vector<DeviceTeam::Member> members;
  for (int i = 0; i < 2; ++i) {
    backends.push_back(machine.Backends()("cuda", {.device_index = i}));
    members.push_back(
        {backends.back().get(), hosts[static_cast<size_t>(i)].get()});
  }
  Processes one(nullptr);
  const auto team = DeviceTeam::Connect(
      members, one, {.timeout = std::chrono::milliseconds(50)});
  ASSERT_NE(team, nullptr);
  EXPECT_EQ(MessageOf<CommError>([&] {
              team->Run(0, [&] {
                while (team->of(0).failure().empty()) std::this_thread::yield();
              });
            }),
            "nccl, rank 0 of 2 (cuda:0): waited 0.05 s for the others in "
            "call 0, join");
  EXPECT_THAT(machine.world().aborted(), ::testing::ElementsAre(0, 1));
  // the other processes hear of it by the host
  EXPECT_THAT(hosts[1]->Failure(), HasSubstr("waited 0.05 s"));
}

// A process that never comes: its rank is missed before the first step.
TEST(DeviceCollectivesTest, ARankThatNeverJoinsEndsTheWait) {
  Machine machine(2);
  auto communicators = comm::MakeThreadCommunicators(2);
  const auto backend = machine.Backends()("cuda", {.device_index = 1});
  const std::string group = backend->collectives()->NewGroup();
  const auto communicator =
      MakeLibraryCommunicator(*backend, group, communicators[1].get(),
                              {.timeout = std::chrono::milliseconds(50)});
  EXPECT_EQ(MessageOf<CommError>([&] { communicator->AwaitOthers(); }),
            "nccl, rank 1 of 2 (cuda:1): waited 0.05 s for the others in "
            "call 0, join");
  // heartbeats find it sooner
  const auto another = MakeLibraryCommunicator(
      *backend, backend->collectives()->NewGroup(), communicators[1].get(),
      {.timeout = std::chrono::hours(1)});
  communicators[0]->Abort("rank 0 is gone");
  EXPECT_EQ(MessageOf<CommError>([&] { another->AwaitOthers(); }),
            "nccl, rank 1 of 2 (cuda:1): rank 0 is gone");
}

}  // namespace
}  // namespace replicant::replicator
