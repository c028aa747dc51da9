// Processes on several hosts, without a network: what is reduced, and how many
// messages and bytes that takes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "replicator/comm/process_layout.h"
#include "replicator/comm/process_ranks.h"
#include "tests/replicator/comm/communicator_conformance.h"
#include "tests/replicator/comm/memory_network.h"

namespace replicant::comm {
namespace {

using ::testing::ElementsAre;
using testing::Link;
using testing::MakespanOf;
using testing::MemoryNetwork;
using testing::RunProcesses;

using Hosts = std::vector<int>;
using Lists = std::vector<std::vector<int>>;

// `per_host` processes on each of `hosts` hosts.
Hosts Even(int hosts, int per_host) {
  Hosts host_of;
  for (int p = 0; p < hosts * per_host; ++p) host_of.push_back(p / per_host);
  return host_of;
}

TEST(ProcessLayoutTest, AGroupLiesOnOneHostAndHasFourProcessesAtMost) {
  const auto groups = [](const Hosts& host_of) {
    return ProcessLayout(host_of).groups;
  };
  EXPECT_EQ(groups({7}), (Lists{{0}}));
  // few processes: all send to all
  EXPECT_EQ(groups(Even(1, 4)), (Lists{{0, 1, 2, 3}}));
  EXPECT_EQ(groups(Even(4, 1)), (Lists{{0, 1, 2, 3}}));
  // but two of a host reduce before they send
  EXPECT_EQ(groups(Even(2, 2)), (Lists{{0, 1}, {2, 3}}));
  EXPECT_EQ(groups(Even(1, 7)), (Lists{{0, 1, 2}, {3, 4, 5, 6}}));
  EXPECT_EQ(groups(Even(5, 1)), (Lists{{0}, {1}, {2}, {3}, {4}}));
  EXPECT_EQ(groups(Even(2, 5)), (Lists{{0, 1}, {2, 3, 4}, {5, 6}, {7, 8, 9}}));
  // not numbered by host: sums keep their order and go to and fro
  EXPECT_EQ(groups({0, 1, 0, 1, 1}), (Lists{{0}, {1}, {2}, {3, 4}}));
}

TEST(ProcessLayoutTest, TheChainGoesFromHostToHostOnce) {
  const ProcessLayout layout(Hosts{5, 3, 5, 3, 9});
  EXPECT_EQ(layout.hosts, (Lists{{0, 2}, {1, 3}, {4}}));
  EXPECT_THAT(layout.host_of, ElementsAre(0, 1, 0, 1, 2));
  EXPECT_THAT(layout.chain, ElementsAre(0, 2, 1, 3, 4));
}

// its checks are used without the suite: a memory network cannot split
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommunicatorTest);

// The results of every transport, on hosts of three, on hosts whose processes
// are mixed, and with two ranks in each process.
template <typename Place>
struct MemoryTransport {
  static void RunOn(int size, const std::function<void(Communicator&)>& body) {
    const int threads = Place::kThreads;
    const int processes = (size + threads - 1) / threads;
    Hosts host_of;
    for (int p = 0; p < processes; ++p) host_of.push_back(Place::HostOf(p));
    MemoryNetwork network(host_of);
    RunProcesses(processes, [&](int process) {
      const LocalRanks own =
          MakeLocalRanks(network.ExchangeOf(process),
                         std::min(threads, size - process * threads));
      RunProcesses(static_cast<int>(own.ranks.size()), [&](int thread) {
        body(*own.ranks[static_cast<size_t>(thread)]);
      });
    });
  }
};
struct ThreeByThree {
  static constexpr int kThreads = 1;
  static int HostOf(int process) { return process / 3; }
};
struct InTurns {
  static constexpr int kThreads = 1;
  static int HostOf(int process) { return process % 2; }
};
struct PairsOfThreads {
  static constexpr int kThreads = 2;
  static int HostOf(int process) { return process / 2; }
};

template <typename Place>
class HostsTest : public ::testing::Test {};
using Places = ::testing::Types<ThreeByThree, InTurns, PairsOfThreads>;
TYPED_TEST_SUITE(HostsTest, Places);

TYPED_TEST(HostsTest, ReduceGatherAndBroadcastExactly) {
  for (int size = 1; size <= kMaxRanks; ++size) {
    MemoryTransport<TypeParam>::RunOn(size, [&](Communicator& comm) {
      for (const int64_t n : {1, 17, 4'099}) {
        CheckReductions<float>(comm, n);
        CheckReductions<BFloat16>(comm, n);
        CheckReductions<int64_t>(comm, n);
        CheckCopies<float>(comm, n);
      }
      comm.Barrier();
    });
  }
}

// Values whose sums round differently in every other order.
template <typename T>
std::vector<T> RoughValues(int64_t count, int rank) {
  std::vector<T> x;
  x.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const auto mantissa =
        static_cast<float>((i * 7919 + rank * 104'729) % 1013);
    x.push_back(static_cast<T>((mantissa - 500.0F) *
                               (rank % 3 == 0 ? 8192.0F : 0x1p-10F)));
  }
  return x;
}

template <typename T>
std::vector<T> SumOn(const Hosts& host_of, int64_t count, ReduceOp op) {
  MemoryNetwork network(host_of);
  std::vector<T> result;
  RunProcesses(network.num_processes(), [&](int process) {
    const LocalRanks own = MakeLocalRanks(network.ExchangeOf(process), 1);
    std::vector<T> x = RoughValues<T>(count, process);
    own.ranks[0]->AllReduce(View(x, 0, count), Mutable(x, 0, count), op);
    if (process == 0) result = x;
  });
  return result;
}

TEST(HostsBitsTest, BitsDependOnTheNumberOfRanksAndNotOnTheirHosts) {
  for (const int64_t count : {700, 40'000, 300'007}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
      const auto f32 = SumOn<float>(Even(1, 12), count, op);
      const auto bf16 = SumOn<BFloat16>(Even(1, 12), count, op);
      for (const Hosts& host_of :
           {Even(2, 6), Even(6, 2), Even(12, 1), Even(3, 4),
            Hosts{0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2},
            Hosts{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}}) {
        EXPECT_EQ(SumOn<float>(host_of, count, op), f32);
        ExpectEqual(SumOn<BFloat16>(host_of, count, op), bf16, "bf16");
      }
    }
  }
}

// The network after one call of every process.
void Call(MemoryNetwork* network, Collective::Kind kind, int64_t count,
          DType dtype = DType::kF32) {
  RunProcesses(network->num_processes(), [&](int process) {
    const LocalRanks own = MakeLocalRanks(network->ExchangeOf(process), 1);
    const int64_t all = kind == Collective::Kind::kAllGather
                            ? count * network->num_processes()
                            : count;
    std::vector<float> x(static_cast<size_t>(count), 1.0F);
    std::vector<float> y(static_cast<size_t>(all));
    own.processes->Barrier();
    // what follows is counted
    network->Forget(process);
    own.ranks[0]->Run(
        {.kind = kind,
         .in = TensorView(dtype, Shape({count}), x.data()),
         .out = MutableTensorView(dtype, Shape({all}), y.data())});
  });
}

int Log2(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

int64_t MostMessages(const MemoryNetwork& network) {
  int64_t most = 0;
  for (int p = 0; p < network.num_processes(); ++p) {
    most = std::max(most, network.Sent(p).messages);
  }
  return most;
}

// Would grow with the number of processes if anyone sent to everyone.
TEST(HostsMessagesTest, ASmallCallTakesALogarithmOfMessages) {
  for (const int processes : {2, 4, 8, 16, 32, 64}) {
    for (const int per_host : {1, 4, processes}) {
      if (processes % per_host != 0) continue;
      MemoryNetwork network(Even(processes / per_host, per_host));
      for (const auto kind :
           {Collective::Kind::kAllReduce, Collective::Kind::kAllGather,
            Collective::Kind::kBroadcast, Collective::Kind::kBarrier}) {
        Call(&network, kind, /*count=*/64);
        // the bytes within a host, between hosts, and back
        EXPECT_LE(MostMessages(network),
                  2 * Log2(per_host) + Log2(processes / per_host))
            << processes << " processes, " << per_host << " on a host, kind "
            << static_cast<int>(kind);
      }
    }
  }
}

TEST(HostsMessagesTest, ALargeSumTakesEquallyManyMessagesOfAnyNumber) {
  // of each piece: its parts to three others, results to three others, up, down
  constexpr int64_t kMessagesOfAPiece = 8;
  constexpr int64_t kPieces = 16;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int processes : {8, 16, 32, 64}) {
      for (const int per_host : {1, 8, processes}) {
        MemoryNetwork network(Even(processes / per_host, per_host));
        Call(&network, Collective::Kind::kAllReduce, /*count=*/1 << 17, dtype);
        EXPECT_LE(MostMessages(network), kMessagesOfAPiece * kPieces)
            << processes << " processes, " << per_host << " on a host";
        EXPECT_GT(MostMessages(network), 0);
      }
    }
  }
}

// Each process alone would send its bytes to the next host.
TEST(HostsMessagesTest, AHostSendsATensorOnceEachWay) {
  constexpr int64_t kCount = 1 << 18;
  constexpr int64_t kBytes = 4 * kCount;
  MemoryNetwork network(Even(4, 8));
  Call(&network, Collective::Kind::kAllReduce, kCount);
  for (const int host : {0, 3}) {
    EXPECT_EQ(network.SentByHost(host).bytes, kBytes);
  }
  // up and down
  for (const int host : {1, 2}) {
    EXPECT_EQ(network.SentByHost(host).bytes, 2 * kBytes);
  }
  Call(&network, Collective::Kind::kBroadcast, kCount);
  EXPECT_EQ(network.SentByHost(0).bytes, kBytes);
  EXPECT_EQ(network.SentByHost(3).bytes, 0);
  Call(&network, Collective::Kind::kAllReduce, /*count=*/1);
  // the first process of each host, to two others
  for (int host = 0; host < 4; ++host) {
    EXPECT_EQ(network.SentByHost(host).messages, 2);
  }
}

// On links of a data centre, 32 processes of 4 hosts are faster than the same
// 32 that do not know who shares a host.
TEST(HostsMessagesTest, KnowingHostsSavesTimeBetweenThem) {
  constexpr Link kMemory{.latency_s = 2e-6, .bytes_per_s = 5e9};
  constexpr Link kNetwork{.latency_s = 30e-6, .bytes_per_s = 1.25e9};
  const auto seconds = [&](const Hosts& known, int64_t count) {
    MemoryNetwork network(known);
    Call(&network, Collective::Kind::kAllReduce, count);
    return MakespanOf(network, Even(4, 8), kMemory, kNetwork);
  };
  const Hosts unknown = Even(32, 1);
  EXPECT_LT(seconds(Even(4, 8), 64), 0.8 * seconds(unknown, 64));
  EXPECT_LT(seconds(Even(4, 8), 1 << 18), 0.9 * seconds(unknown, 1 << 18));
}

}  // namespace
}  // namespace replicant::comm
