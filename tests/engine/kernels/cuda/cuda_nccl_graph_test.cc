// NCCL's calls in a CUDA graph, and what the fake NCCL finds there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/kernels/device_collectives.h"
#include "tests/support/fake_cuda/fake_backend.h"
#include "tests/support/fake_cuda/host_nccl.h"
#include "tests/support/message_of.h"

namespace replicant::kernels {
namespace {

using ::testing::ElementsAre;
using testing::FakeDriver;
using testing::FakeDriverOptions;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MessageOf;
using testing::NcclWorld;

constexpr int64_t kCount = 16;
constexpr size_t kBytes = kCount * sizeof(float);

// Two ranks with a device each, on the calling thread.
class NcclGraphTest : public ::testing::Test {
 protected:
  struct Rank {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<DeviceRank> rank;
    std::unique_ptr<Buffer> device, host;
    std::unique_ptr<Stream> stream, calls;
    std::unique_ptr<Event> fork, join;

    // The sum of all ranks' values, in place, on a separate stream.
    void ForkAndSum() const {
      stream->Record(*fork);
      calls->Wait(*fork);
      Sum(*calls);
      calls->Record(*join);
    }
    void Sum(Stream& on, int64_t count = kCount) const {
      rank->Launch(
          {.in = device->data(), .out = device->data(), .count = count}, on);
    }
    // host -> device, sum, device -> host.
    void AddStep() const {
      stream->CopyToDevice(device->data(), host->data(), kBytes);
      ForkAndSum();
      stream->Wait(*join);
      stream->CopyToHost(host->data(), device->data(), kBytes);
    }
    std::unique_ptr<Recording> RecordStep() const {
      return backend->Record(*stream, [&] { AddStep(); });
    }
    float* values() const { return reinterpret_cast<float*>(host->data()); }
  };

  void Connect(
      std::chrono::milliseconds graph_timeout = std::chrono::minutes(1)) {
    world_ = std::make_shared<NcclWorld>(driver_, graph_timeout);
    std::string group;
    for (int i = 0; i < 2; ++i) {
      Rank& rank = ranks_[static_cast<size_t>(i)];
      rank.backend = testing::MakeFakeCudaBackend(
          driver_, testing::MakeHostNccl(world_), i);
      if (i == 0) group = rank.backend->collectives()->NewGroup();
      rank.rank = rank.backend->collectives()->Join(group, i, 2);
      rank.device = rank.backend->Allocate(kBytes);
      rank.host = rank.backend->AllocateHost(kBytes);
      rank.stream = rank.backend->CreateStream();
      rank.calls = rank.backend->CreateStream();
      rank.fork = rank.backend->CreateEvent();
      rank.join = rank.backend->CreateEvent();
    }
  }
  // Runs work(rank) on a thread of each rank's own.
  template <typename Work>
  void OnBoth(const Work& work) {
    std::thread other([&] { work(ranks_[1]); });
    work(ranks_[0]);
    other.join();
  }
  std::vector<std::string> ProblemsOfRanks() {
    std::vector<std::string> problems;
    for (const Rank& rank : ranks_)
      problems.push_back(rank.rank->Poll().problem);
    return problems;
  }

  const std::shared_ptr<FakeDriver> driver_ =
      std::make_shared<FakeDriver>(FakeDriverOptions{.num_devices = 2});
  std::shared_ptr<NcclWorld> world_;
  std::array<Rank, 2> ranks_;
};

TEST_F(NcclGraphTest, EachLaunchMakesTheCallsAnew) {
  Connect();
  OnBoth([&](Rank& rank) {
    rank.values()[0] = &rank == &ranks_[0] ? 1.0F : 2.0F;
    const auto recording = rank.RecordStep();
    for (int i = 0; i < 3; ++i) recording->Launch(*rank.stream);
    rank.stream->Synchronize();
    EXPECT_EQ(rank.values()[0], 12.0F);
  });
  EXPECT_THAT(driver_->problems(), IsEmpty());
}

// catches a graph whose call is not ordered by the forks of its own capture
TEST_F(NcclGraphTest, FindsACallThatNothingOrdersAfterItsOperands) {
  Connect();
  OnBoth([&](Rank& rank) {
    const auto recording = rank.backend->Record(*rank.stream, [&] {
      rank.stream->Record(*rank.fork);
      rank.stream->CopyToDevice(rank.device->data(), rank.host->data(), kBytes);
      rank.calls->Wait(*rank.fork);
      rank.Sum(*rank.calls);
      rank.calls->Record(*rank.join);
      rank.stream->Wait(*rank.join);
    });
    recording->Launch(*rank.stream);
    rank.stream->Synchronize();
  });
  EXPECT_THAT(driver_->problems(), ::testing::Each(HasSubstr("ncclAllReduce")));
  EXPECT_THAT(driver_->problems(), ::testing::Not(IsEmpty()));
}

TEST_F(NcclGraphTest, FindsACallThatIsNotJoined) {
  Connect();
  const Rank& rank = ranks_[0];
  EXPECT_THAT(MessageOf([&] {
                rank.backend->Record(*rank.stream, [&] { rank.ForkAndSum(); });
              }),
              HasSubstr("cuStreamEndCapture: CUDA error 904"));
}

TEST_F(NcclGraphTest, FindsACallOutsideOfTheCapture) {
  Connect();
  const Rank& rank = ranks_[0];
  rank.backend->Record(*rank.stream, [&] { rank.Sum(*rank.calls); });
  EXPECT_THAT(driver_->problems(),
              ElementsAre("ncclAllReduce: on a stream outside of the capture"));
}

TEST_F(NcclGraphTest, AGroupIsNotJoinedWithinACapture) {
  Connect();
  const Rank& rank = ranks_[0];
  const std::string group = rank.backend->collectives()->NewGroup();
  EXPECT_THAT(MessageOf([&] {
                rank.backend->Record(*rank.stream, [&] {
                  rank.backend->collectives()->Join(group, 0, 2);
                });
              }),
              HasSubstr("ncclCommInitRankConfig"));
  EXPECT_THAT(driver_->problems(),
              ElementsAre("ncclCommInitRankConfig: within a capture"));
}

TEST_F(NcclGraphTest, FindsACallThatOneRankMakesOutsideOfItsGraph) {
  Connect();
  OnBoth([&](Rank& rank) {
    if (&rank == &ranks_[0]) {
      rank.AddStep();
    } else {
      rank.RecordStep()->Launch(*rank.stream);
    }
    rank.stream->Synchronize();
  });
  const char* const problem = "ranks make a call in a graph and outside of one";
  EXPECT_THAT(ProblemsOfRanks(),
              ElementsAre(HasSubstr(problem), HasSubstr(problem)));
  EXPECT_THAT(driver_->problems(),
              ElementsAre(std::string("NCCL: ") + problem));
}

TEST_F(NcclGraphTest, FindsGraphsOfDifferentCaptures) {
  Connect();
  OnBoth([&](Rank& rank) {
    const auto first = rank.RecordStep();
    const auto second = rank.RecordStep();
    (&rank == &ranks_[0] ? first : second)->Launch(*rank.stream);
    rank.stream->Synchronize();
  });
  const char* const problem = "ranks launch graphs of different captures";
  EXPECT_THAT(ProblemsOfRanks(),
              ElementsAre(HasSubstr(problem), HasSubstr(problem)));
  EXPECT_THAT(driver_->problems(),
              ElementsAre(std::string("NCCL: ") + problem));
}

TEST_F(NcclGraphTest, FindsDifferentCallsInTheGraphs) {
  Connect();
  OnBoth([&](Rank& rank) {
    const auto recording = rank.backend->Record(*rank.stream, [&] {
      rank.Sum(*rank.stream, &rank == &ranks_[0] ? kCount : kCount - 1);
    });
    recording->Launch(*rank.stream);
    rank.stream->Synchronize();
  });
  EXPECT_THAT(driver_->problems(),
              ElementsAre("NCCL: ranks make different calls"));
}

// NCCL waits for the graph then, without an end.
TEST_F(NcclGraphTest, FindsARankThatIsDestroyedBeforeItsGraph) {
  Connect();
  const auto recording = ranks_[1].RecordStep();
  ranks_[1].rank.reset();
  EXPECT_THAT(driver_->problems(),
              ElementsAre("ncclCommDestroy: rank 1 has calls in a graph"));
}

// catches a test that would hang
TEST_F(NcclGraphTest, FindsARankThatWaitsForTheOthersWithoutAnEnd) {
  Connect(std::chrono::milliseconds(20));
  const auto recording = ranks_[0].RecordStep();
  EXPECT_THAT(MessageOf([&] { recording->Launch(*ranks_[0].stream); }),
              HasSubstr("cuGraphLaunch"));
  EXPECT_THAT(driver_->problems(),
              ElementsAre("ncclAllReduce of rank 0 of 2: nobody has ended its "
                          "wait for the others, in a graph"));
}

TEST_F(NcclGraphTest, AnAbortEndsTheWaitInAGraph) {
  Connect();
  const auto recording = ranks_[0].RecordStep();
  std::thread watcher([&] { ranks_[0].rank->Abort(); });
  recording->Launch(*ranks_[0].stream);
  watcher.join();
  ranks_[0].stream->Synchronize();
  EXPECT_THAT(driver_->problems(), IsEmpty());
}

}  // namespace
}  // namespace replicant::kernels
