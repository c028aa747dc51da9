// Run by mpirun on kMaxRanks processes, each of which runs all tests.
#include "core/comm/mpi_communicator.h"

#include <gtest/gtest.h>

#include "tests/core/comm/communicator_conformance.h"

namespace replicant::comm {
namespace {

Communicator& World() {
  static const std::unique_ptr<Communicator> world = MakeMpiCommunicator();
  return *world;
}

struct MpiTransport {
  static void RunOn(int size, const std::function<void(Communicator&)>& body) {
    Communicator& world = World();
    ASSERT_EQ(world.size(), kMaxRanks);
    const auto group = world.Split(world.rank() < size ? 0 : -1, world.rank());
    if (group != nullptr) body(*group);
    world.Barrier();
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, CommunicatorTest, MpiTransport);

// Pieces of 4 MiB a rank: these take two rounds, the last one short.
TEST(MpiCommunicatorTest, CutsLargeTensorsIntoPieces) {
  MpiTransport::RunOn(2, [](Communicator& comm) {
    constexpr int64_t kCount = 2'500'003;
    std::vector<float> x(kCount);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(i % 1000) + static_cast<float>(comm.rank());
    }
    comm.AllReduce(View(x, 0, kCount), Mutable(x, 0, kCount), ReduceOp::kSum);
    int64_t num_wrong = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] != 2.0F * static_cast<float>(i % 1000) + 1.0F) ++num_wrong;
    }
    EXPECT_EQ(num_wrong, 0);
    std::vector<float> all(2 * kCount);
    comm.AllGather(View(x, 0, kCount), Mutable(all, 0, 2 * kCount));
    EXPECT_TRUE(std::equal(x.begin(), x.end(), all.begin() + kCount));
    comm.Broadcast(Mutable(all, 0, 2 * kCount), 1);
    std::vector<float> part(kCount);
    comm.ReduceScatter(View(all, 0, 2 * kCount), Mutable(part, 0, kCount),
                       ReduceOp::kMax);
    EXPECT_EQ(part, x);
  });
}

TEST(MpiCommunicatorTest, KnowsHowItWasStarted) {
  EXPECT_TRUE(HasMpi());
  EXPECT_EQ(NumMpiProcesses(), kMaxRanks);
}

}  // namespace
}  // namespace replicant::comm
