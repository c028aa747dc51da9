// Run by mpirun, with one replica in each process and, of two processes, with
// two; every process runs all tests.
#include <gtest/gtest.h>
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/runtime/checkpoint.h"
#include "learner/workloads/resnet_workload.h"
#include "learner/workloads/sngan_workload.h"
#include "replicator/comm/mpi_communicator.h"
#include "replicator/make_replicator.h"
#include "tests/learner/workloads/image_replicas.h"
#include "tests/learner/workloads/mpi_replicas.h"

namespace {

// Bytes that this process has sent, or taken part in sending.
std::atomic<int64_t> num_sent_bytes = 0;

void AddBytes(int count, MPI_Datatype type) {
  int size = 0;
  MPI_Type_size(type, &size);
  num_sent_bytes += int64_t{count} * size;
}

}  // namespace

// MPI's profiling interface: these stand in front of the library's.
extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to,
                         int tag, MPI_Comm comm, MPI_Request* request) {
  AddBytes(count, type);
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}
extern "C" int MPI_Bcast(void* data, int count, MPI_Datatype type, int root,
                         MPI_Comm comm) {
  AddBytes(count, type);
  return PMPI_Bcast(data, count, type, root, comm);
}
extern "C" int MPI_Allgather(const void* data, int count, MPI_Datatype type,
                             void* result, int result_count,
                             MPI_Datatype result_type, MPI_Comm comm) {
  AddBytes(count, type);
  return PMPI_Allgather(data, count, type, result, result_count, result_type,
                        comm);
}

namespace replicant::learner {
namespace {

using replicator::Strategy;

// By how many replicas are in each process.
class ImageBetweenGraphTest : public ::testing::TestWithParam<int> {
 protected:
  static replicator::ReplicationConfig Config(const Strategy* strategy,
                                              const char* backend) {
    return ReplicasOfProcesses(strategy, backend, GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(ReplicasPerProcess, ImageBetweenGraphTest,
                         ::testing::Range(1,
                                          comm::NumMpiProcesses() > 2 ? 2 : 3));

TEST_P(ImageBetweenGraphTest, ResNetLearnsAsOneReplica) {
  CheckResNetLearnsAsOneReplica(DType::kF64,
                                Config(&Strategy::kBetweenGraph, "reference"));
  CheckResNetLearnsAsOneReplica(DType::kF32,
                                Config(&Strategy::kBetweenGraph, "cpu"));
}

TEST_P(ImageBetweenGraphTest, SnganLearnsAsOneReplica) {
  CheckSnganLearnsAsOneReplica(DType::kF64,
                               Config(&Strategy::kBetweenGraph, "reference"));
  CheckSnganLearnsAsOneReplica(DType::kF32,
                               Config(&Strategy::kBetweenGraph, "cpu"));
}

TEST_P(ImageBetweenGraphTest, GivesTheBitsOfReplicasInOneProcess) {
  for (const auto statistics :
       {models::NormStatistics::kSync, models::NormStatistics::kPerReplica}) {
    const auto train = [&](const Strategy* strategy) {
      return TrainResNet(DType::kF32, statistics, Config(strategy, "cpu")).last;
    };
    EXPECT_EQ(train(&Strategy::kBetweenGraph), train(&Strategy::kInGraph));
  }
  // everything that divides an update and its gradients at once
  const auto train_divided = [&](const Strategy* strategy, DType wire) {
    replicator::ReplicationConfig config = Config(strategy, "cpu");
    config.logical_devices = 2;
    config.accumulation_steps = 2;
    config.gradient_format = wire;
    Variables last =
        TrainResNet(DType::kF32, models::NormStatistics::kSync, config).last;
    // every replica has its own sums
    std::erase_if(last, [](const auto& variable) {
      return variable.first.starts_with("accumulation/");
    });
    return last;
  };
  for (const DType wire : {DType::kF32, DType::kBF16}) {
    EXPECT_EQ(train_divided(&Strategy::kBetweenGraph, wire),
              train_divided(&Strategy::kInGraph, wire));
  }
  const auto train = [&](const Strategy* strategy) {
    return TrainSngan(DType::kF32, Config(strategy, "cpu")).last;
  };
  EXPECT_EQ(train(&Strategy::kBetweenGraph), train(&Strategy::kInGraph));
}

// The first process alone loads the checkpoint; the others learn from it where
// in the order of the images they are.
TEST(ImageWorkersTest, GoOnInTheMiddleOfAnEpoch) {
  bool is_first = false;
  int accumulation_steps = 1;
  const auto make = [&] {
    models::resnet::ResNetConfig config;
    config.depth = models::resnet::Depth::k18;
    config.stem = models::resnet::Stem::kSmall;
    config.width = 4;
    config.image_size = 16;
    config.num_classes = 3;
    replicator::ReplicationConfig replicas =
        ReplicasOfProcesses(&Strategy::kBetweenGraph, "cpu", 1);
    replicas.accumulation_steps = accumulation_steps;
    auto replicator = replicator::MakeReplicator(replicas, /*seed=*/1);
    is_first = replicator->process_id() == 0;
    return ResNetWorkload(config, kImageBatch, graph::Precision::kF32,
                          /*seed=*/1, std::move(replicator));
  };
  const auto take_step = [](ResNetWorkload& workload) {
    NextResult result = NextResult::kTimeout;
    while (result == NextResult::kTimeout) {
      result = workload.Step(Clock::Real().Now() + std::chrono::seconds(1));
    }
    EXPECT_EQ(result, NextResult::kOk);
    return workload.Scalars()[0].second;
  };
  for (; accumulation_steps <= 3; accumulation_steps += 2) {
    std::vector<double> expected;
    std::vector<double> losses;
    std::map<std::string, std::string> state;
    runtime::HostVariables variables;
    {
      ResNetWorkload whole = make();
      for (int i = 0; i < 3; ++i) take_step(whole);
      state = whole.State();
      variables = runtime::CopyVariables(whole.variables());
      for (int i = 0; i < 5; ++i) expected.push_back(take_step(whole));
    }
    ResNetWorkload resumed = make();
    if (is_first) {
      resumed.Restore(state);
      for (const auto& [name, value] : variables) {
        resumed.variables().Set(name, value.view());
      }
    }
    for (int i = 0; i < 5; ++i) losses.push_back(take_step(resumed));
    EXPECT_EQ(losses, expected) << accumulation_steps;
  }
}

// Would catch processes of which some update one network and some the other.
TEST(ImageWorkersTest, GoOnInTheMiddleOfACycle) {
  bool is_first = false;
  const auto make = [&] {
    models::sngan::SnganConfig config;
    config.num_classes = 3;
    config.latent_size = 4;
    config.generator_channels = config.discriminator_channels = 3;
    config.discriminator_steps = 2;
    auto replicator = replicator::MakeReplicator(
        ReplicasOfProcesses(&Strategy::kBetweenGraph, "cpu", 1), /*seed=*/1);
    is_first = replicator->process_id() == 0;
    return SnganWorkload(config, kImageBatch, graph::Precision::kF32,
                         /*seed=*/1, std::move(replicator));
  };
  const auto take_steps = [](SnganWorkload& workload, int count) {
    for (int i = 0; i < count; ++i) {
      NextResult result = NextResult::kTimeout;
      while (result == NextResult::kTimeout) {
        result = workload.Step(Clock::Real().Now() + std::chrono::seconds(1));
      }
      ASSERT_EQ(result, NextResult::kOk);
    }
  };
  SnganWorkload whole = make();
  take_steps(whole, 2);
  const auto state = whole.State();
  const runtime::HostVariables variables =
      runtime::CopyVariables(whole.variables());
  take_steps(whole, 3);
  SnganWorkload resumed = make();
  if (is_first) {
    resumed.Restore(state);
    for (const auto& [name, value] : variables) {
      resumed.variables().Set(name, value.view());
    }
  }
  take_steps(resumed, 3);
  EXPECT_EQ(ValuesOf(resumed.variables()), ValuesOf(whole.variables()));
}

// A step sends gradients: as many bytes for images of any size.
TEST(ImageWorkersTest, SendNoImages) {
  std::vector<int64_t> sent;
  int64_t gradient_bytes = 0;
  for (const int64_t side : {16, 48}) {
    models::resnet::ResNetConfig config;
    config.depth = models::resnet::Depth::k18;
    config.stem = models::resnet::Stem::kSmall;
    config.width = 4;
    config.image_size = side;
    config.num_classes = 3;
    ResNetWorkload workload(
        config, kImageBatch, graph::Precision::kF32, /*seed=*/1,
        replicator::MakeReplicator(
            ReplicasOfProcesses(&Strategy::kBetweenGraph, "cpu", 1),
            /*seed=*/1));
    gradient_bytes = 0;
    for (const auto& [name, variable] : workload.variables().variables()) {
      if (!variable.spec.is_trainable) continue;
      gradient_bytes += 4 * variable.spec.shape.num_elements();
    }
    int64_t before = 0;
    constexpr int kSteps = 4;
    for (int i = 0; i <= kSteps; ++i) {
      NextResult result = NextResult::kTimeout;
      while (result == NextResult::kTimeout) {
        result = workload.Step(Clock::Real().Now() + std::chrono::seconds(100));
      }
      ASSERT_EQ(result, NextResult::kOk);
      // the first step also tells the place of the run
      if (i == 0) before = num_sent_bytes;
    }
    sent.push_back((num_sent_bytes - before) / kSteps);
  }
  EXPECT_EQ(sent[0], sent[1]);
  EXPECT_GT(sent[0], 0);
  // each process sends gradients and sums once, in a chain all of them and
  // otherwise its parts; the rest are statistics and two scalars
  EXPECT_LT(static_cast<double>(sent[0]),
            2.2 * static_cast<double>(gradient_bytes));
  if (comm::NumMpiProcesses() > 1) {
    RecordProperty("bytes_per_step", std::to_string(sent[0]));
    RecordProperty("gradient_bytes", std::to_string(gradient_bytes));
  }
}

}  // namespace
}  // namespace replicant::learner
