// Run by mpirun on two or more processes that divide kMaxRanks ranks; every
// process runs all tests.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "replicator/comm/mpi_communicator.h"
#include "tests/replicator/comm/communicator_conformance.h"

namespace replicant::comm {
namespace {

// Runs `body` on every rank of this process.
void RunRanks(const LocalRanks& world,
              const std::function<void(Communicator&)>& body) {
  std::vector<std::unique_ptr<Thread>> threads;
  threads.reserve(world.ranks.size());
  for (const auto& rank : world.ranks) {
    threads.push_back(std::make_unique<Thread>(
        "rank", [&](const Thread::StopToken&) { body(*rank); }));
  }
  for (const auto& thread : threads) thread->Join();
}

const LocalRanks& World() {
  static const LocalRanks world = MakeMpiRanks(kMaxRanks / NumMpiProcesses());
  return world;
}

// The last process has fewer ranks than the others in a group of an odd size.
struct MpiRanksTransport {
  static void RunOn(int size, const std::function<void(Communicator&)>& body) {
    RunRanks(World(), [&](Communicator& rank) {
      ASSERT_EQ(rank.size(), kMaxRanks);
      const auto group = rank.Split(rank.rank() < size ? 0 : -1, rank.rank());
      if (group != nullptr) body(*group);
      rank.Barrier();
    });
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(MpiRanks, CommunicatorTest, MpiRanksTransport);

TEST(MpiRanksTest, ProcessesCallBetweenCallsOfTheirRanks) {
  const LocalRanks& world = World();
  const int per_process = kMaxRanks / NumMpiProcesses();
  EXPECT_EQ(world.processes->size(), NumMpiProcesses());
  for (int round = 0; round < 3; ++round) {
    std::vector<int32_t> x = {world.processes->rank() + round};
    world.processes->Broadcast(Mutable(x, 0, 1), NumMpiProcesses() - 1);
    EXPECT_EQ(x[0], NumMpiProcesses() - 1 + round);
    RunRanks(world, [&](Communicator& rank) {
      EXPECT_EQ(rank.rank() / per_process, world.processes->rank());
      std::vector<int32_t> y = {1 << rank.rank()};
      rank.AllReduce(View(y, 0, 1), Mutable(y, 0, 1), ReduceOp::kSum);
      EXPECT_EQ(y[0], (1 << kMaxRanks) - 1);
    });
  }
}

// Pieces of 4 MiB for a process: these take two rounds, the last one short.
TEST(MpiRanksTest, CutsLargeTensorsIntoPieces) {
  MpiRanksTransport::RunOn(3, [](Communicator& comm) {
    constexpr int64_t kCount = 2'500'003;
    const auto value = [](size_t i, int rank) {
      return static_cast<float>((i % 1000) + static_cast<size_t>(rank));
    };
    std::vector<float> x(kCount);
    for (size_t i = 0; i < x.size(); ++i) x[i] = value(i, comm.rank());
    std::vector<float> all(3 * kCount);
    comm.AllGather(View(x, 0, kCount), Mutable(all, 0, 3 * kCount));
    comm.AllReduce(View(x, 0, kCount), Mutable(x, 0, kCount), ReduceOp::kMax);
    int64_t num_wrong = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      for (int r = 0; r < 3; ++r) {
        if (all[static_cast<size_t>(r * kCount) + i] != value(i, r)) {
          ++num_wrong;
        }
      }
      if (x[i] != value(i, 2)) ++num_wrong;
    }
    EXPECT_EQ(num_wrong, 0);
    comm.Broadcast(Mutable(all, 0, 3 * kCount), 1);
    std::vector<float> part(kCount);
    comm.ReduceScatter(View(all, 0, 3 * kCount), Mutable(part, 0, kCount),
                       ReduceOp::kMin);
    const auto row = all.begin() + comm.rank() * kCount;
    EXPECT_TRUE(std::equal(part.begin(), part.end(), row));
  });
}

}  // namespace
}  // namespace replicant::comm
