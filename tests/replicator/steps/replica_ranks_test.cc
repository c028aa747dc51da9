#include "replicator/steps/replica_ranks.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "base/thread.h"
#include "replicator/comm/thread_communicator.h"

namespace replicant::replicator {
namespace {

// The devices of two processes on this host, of two replicas each.
std::array<std::vector<int>, 2> DevicesOf(const std::vector<int>& listed,
                                          int num_visible) {
  const ReplicationConfig config{.strategy = &Strategy::kBetweenGraph,
                                 .replicas = 4,
                                 .backend = "cuda",
                                 .devices = listed,
                                 .replicas_per_process = 2};
  const auto processes = comm::MakeThreadCommunicators(2);
  std::array<std::vector<int>, 2> devices;
  std::vector<std::unique_ptr<Thread>> threads;
  for (size_t i = 0; i < devices.size(); ++i) {
    threads.push_back(
        std::make_unique<Thread>("process", [&, i](const Thread::StopToken&) {
          const int first =
              FirstReplicaOnHost(config, processes[i].get(),
                                 [num_visible] { return num_visible; });
          devices[i] = {config.DeviceOf(first), config.DeviceOf(first + 1)};
        }));
  }
  for (const auto& thread : threads) thread->Join();
  return devices;
}

using PerProcess = std::array<std::vector<int>, 2>;

TEST(ReplicaRanksTest, AHostsReplicasTakeItsDevicesInOrder) {
  EXPECT_EQ(DevicesOf({}, 4), (PerProcess{{{0, 1}, {2, 3}}}));
}

TEST(ReplicaRanksTest, AProcessThatSeesItsOwnDevicesAloneTakesThem) {
  EXPECT_EQ(DevicesOf({}, 2), (PerProcess{{{0, 1}, {0, 1}}}));
}

// Would catch processes that crowd one device of those that the list names.
TEST(ReplicaRanksTest, AListOfDevicesIsFollowedWhateverAProcessSees) {
  EXPECT_EQ(DevicesOf({0, 0, 1, 1}, 2), (PerProcess{{{0, 0}, {1, 1}}}));
}

}  // namespace
}  // namespace replicant::replicator
