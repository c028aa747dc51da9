// Run by mpirun on kMaxRanks processes, each of which runs all tests.
#include "replicator/comm/mpi_communicator.h"

#include <gtest/gtest.h>

#include "tests/replicator/comm/communicator_conformance.h"

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

TEST(MpiCommunicatorTest, KnowsHowItWasStarted) {
  EXPECT_TRUE(HasMpi());
  EXPECT_EQ(NumMpiProcesses(), kMaxRanks);
}

}  // namespace
}  // namespace replicant::comm
