#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "learner/learner.h"
#include "learner/workloads/resnet_workload.h"
#include "learner/workloads/sngan_workload.h"
#include "replicator/make_replicator.h"
#include "tests/learner/workloads/small_image_models.h"
#include "tests/replicator/parameter_server/server_threads.h"
#include "tests/support/graph_runner.h"

namespace replicant::learner {
namespace {

// The first worker of a resumed run has its checkpoint; the others know the
// servers' counters alone.
class ImageWorkersTest : public ::testing::Test {
 protected:
  using Make = std::function<std::unique_ptr<ImageWorkload>(
      std::unique_ptr<replicator::Replicator>)>;

  // Restores the first worker to 12 batches, with these counters, and lets all
  // workers take the batches of an update. Returns the batches of their groups
  // then.
  static std::vector<std::string> Resume(
      const replicator::ReplicationConfig& config, const Make& make,
      const std::map<std::string, double>& counters) {
    Thread server("server", [&](const Thread::StopToken& stop) {
      Follow(*make(replicator::MakeReplicator(config, /*seed=*/1,
                                              {.is_server = true})),
             [&] { return stop.IsStopRequested(); });
    });
    std::vector<std::string> batches(static_cast<size_t>(config.num_workers()));
    // processes of a group make their workloads and steps together
    const auto run = [&](int index, std::atomic<int>* num_ready) {
      const auto workload = make(
          replicator::MakeReplicator(config, /*seed=*/1, {.index = index}));
      if (index == 0) {
        workload->Restore({{"batches", "12"}, {"cycle_position", "0"}});
        for (const auto& [name, value] : counters) {
          workload->variables().Set(
              name, testing::Values(DType::kI64, Shape({}), {value}).view());
        }
      }
      // one group after the other
      const int group = index / config.processes_per_group;
      while (*num_ready < group * config.processes_per_group) {
        std::this_thread::yield();
      }
      for (int i = 0; i < config.accumulation_steps; ++i) {
        NextResult result = NextResult::kTimeout;
        while (result == NextResult::kTimeout) {
          result =
              workload->Step(Clock::Real().Now() + std::chrono::seconds(1));
        }
        EXPECT_EQ(result, NextResult::kOk);
      }
      batches[static_cast<size_t>(index)] = workload->State().at("batches");
      ++*num_ready;
      while (*num_ready < config.num_workers()) std::this_thread::yield();
      if (index == 0) {
        workload->Stop();
      } else {
        Follow(*workload, [] { return false; });
      }
    };
    std::atomic<int> num_ready = 0;
    {
      std::vector<std::jthread> others;
      for (int i = 1; i < config.num_workers(); ++i) {
        others.emplace_back([&, i] { run(i, &num_ready); });
      }
      run(0, &num_ready);
    }
    return batches;
  }

  static std::unique_ptr<ImageWorkload> ResNet(
      std::unique_ptr<replicator::Replicator> replicator) {
    return std::make_unique<ResNetWorkload>(SmallResNet(), /*batch_size=*/4,
                                            graph::Precision::kF32, /*seed=*/1,
                                            std::move(replicator));
  }
  static std::unique_ptr<ImageWorkload> Sngan(
      std::unique_ptr<replicator::Replicator> replicator) {
    return std::make_unique<SnganWorkload>(SmallSngan(), /*batch_size=*/4,
                                           graph::Precision::kF32, /*seed=*/1,
                                           std::move(replicator));
  }

  replicator::ServerFolder folder_;
};

TEST_F(ImageWorkersTest, AllGoOnWhereTheRunWas) {
  replicator::ReplicationConfig config = folder_.Config(
      /*num_servers=*/1, /*replicas=*/2, /*staleness=*/100, "cpu");
  // twice what each has taken: the second begins with batch 13 of the run, its
  // seventh, when the first has taken its seventh
  EXPECT_EQ(Resume(config, &ResNet, {{"step", 12}}),
            (std::vector<std::string>{"14", "14"}));
  EXPECT_EQ(Resume(config, &Sngan,
                   {{"discriminator_step", 8}, {"generator_step", 4}}),
            (std::vector<std::string>{"14", "14"}));
  config.accumulation_steps = 2;
  EXPECT_EQ(Resume(config, &ResNet, {{"step", 6}}),
            (std::vector<std::string>{"16", "18"}));
}

// A group's processes have its place from its first process, or its counters.
TEST_F(ImageWorkersTest, GroupsOfProcessesGoOnTogether) {
  replicator::ReplicationConfig config = folder_.Config(
      /*num_servers=*/1, /*replicas=*/4, /*staleness=*/100, "cpu");
  config.replicas_per_group = 2;
  config.processes_per_group = 2;
  config.rendezvous = (folder_.path() / "rendezvous").string();
  EXPECT_EQ(Resume(config, &ResNet, {{"step", 12}}),
            (std::vector<std::string>{"14", "14", "14", "14"}));
}

// Image models on replicas that do not wait for each other: steps of both kinds
// are begun ahead, and a pause brings all of them in.
TEST(HogwildImagesTest, BothModelsTrainAndPause) {
  const replicator::ReplicationConfig hogwild{
      .strategy = &replicator::Strategy::kHogwild, .replicas = 2};
  const auto check = [](Workload& workload,
                        const std::vector<std::string>& counters) {
    int64_t num_steps = 0;
    for (; num_steps < 12; ++num_steps) {
      ASSERT_EQ(workload.Step({}), NextResult::kOk);
    }
    workload.input()->SetPaused(true);
    while (!workload.input()->IsDrained()) {
      if (workload.Step({}) == NextResult::kOk) ++num_steps;
    }
    EXPECT_EQ(workload.State().at("batches"), std::to_string(num_steps));
    int64_t counted = 0;
    for (const std::string& name : counters) {
      counted += workload.variables().Get(name).Span<int64_t>()[0];
    }
    EXPECT_EQ(counted, num_steps);
    for (const auto& [name, value] : workload.Scalars()) {
      EXPECT_TRUE(std::isfinite(value)) << name;
    }
  };
  ResNetWorkload resnet(SmallResNet(), /*batch_size=*/16,
                        graph::Precision::kF32, /*seed=*/1,
                        replicator::MakeReplicator(hogwild, 1));
  check(resnet, {"step"});
  SnganWorkload sngan(SmallSngan(), /*batch_size=*/4, graph::Precision::kF32,
                      /*seed=*/2, replicator::MakeReplicator(hogwild, 2));
  check(sngan, {"discriminator_step", "generator_step"});
}

// catches updates of a last checkpoint that its step does not count
TEST(HogwildImagesTest, NoUpdateIsMadeBeyondTheLimit) {
  const replicator::ReplicationConfig hogwild{
      .strategy = &replicator::Strategy::kHogwild, .replicas = 4};
  static constexpr int kSteps = 9;
  const auto check = [](Workload& workload,
                        const std::vector<std::string>& counters) {
    workload.input()->SetLimit(kSteps);
    for (int num_steps = 0; num_steps < kSteps;) {
      if (workload.Step({}) == NextResult::kOk) ++num_steps;
      // those under way are within the limit already
      workload.input()->SetLimit(kSteps - num_steps);
    }
    EXPECT_EQ(workload.Step({}), NextResult::kTimeout);
    EXPECT_EQ(workload.State().at("batches"), std::to_string(kSteps));
    int64_t counted = 0;
    for (const std::string& name : counters) {
      counted += workload.variables().Get(name).Span<int64_t>()[0];
    }
    EXPECT_EQ(counted, kSteps);
  };
  ResNetWorkload resnet(SmallResNet(), /*batch_size=*/4, graph::Precision::kF32,
                        /*seed=*/1, replicator::MakeReplicator(hogwild, 1));
  check(resnet, {"step"});
  SnganWorkload sngan(SmallSngan(), /*batch_size=*/4, graph::Precision::kF32,
                      /*seed=*/2, replicator::MakeReplicator(hogwild, 2));
  check(sngan, {"discriminator_step", "generator_step"});
}

}  // namespace
}  // namespace replicant::learner
