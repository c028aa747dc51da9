// Ranks over TCP, each in a thread of this test with its own connections, as in
// processes. lost_rank_test.cc has processes.
#include "replicator/comm/tcp_communicator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fs.h"
#include "base/thread.h"
#include "replicator/comm/tcp_socket.h"
#include "tests/replicator/comm/communicator_conformance.h"

namespace replicant::comm {
namespace {

using namespace std::chrono_literals;
using replicant::testing::MessageOf;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// A file where processes meet, in a separate folder.
class Rendezvous {
 public:
  Rendezvous() {
    static std::atomic<int> count = 0;
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("tcp-communicator-{}-{}", getpid(), ++count);
    std::filesystem::create_directories(folder_);
  }
  ~Rendezvous() { std::filesystem::remove_all(folder_); }
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  std::string file() const { return (folder_ / "rendezvous").string(); }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

// Runs body(process) on a thread for each process.
void RunProcesses(int count, const std::function<void(int)>& body) {
  std::vector<std::unique_ptr<Thread>> threads;
  threads.reserve(static_cast<size_t>(count));
  for (int p = 0; p < count; ++p) {
    threads.push_back(std::make_unique<Thread>(
        "process", [&, p](const Thread::StopToken&) { body(p); }));
  }
  for (const auto& thread : threads) thread->Join();
}

// A port that was free a moment ago.
std::string FreeAddress() {
  return fmt::format("tcp://127.0.0.1:{}",
                     TcpSocket::Listen({.host = "127.0.0.1"}).local().port);
}

template <bool kReadsMemory>
struct TcpTransport {
  static void RunOn(int size, const std::function<void(Communicator&)>& body) {
    const Rendezvous rendezvous;
    RunProcesses(size, [&](int process) {
      const LocalRanks own =
          MakeTcpRanks(/*count=*/1, {.process = process,
                                     .num_processes = size,
                                     .rendezvous = rendezvous.file(),
                                     .reads_memory = kReadsMemory});
      body(*own.ranks[0]);
    });
    // whoever comes later must not find an old address
    EXPECT_FALSE(std::filesystem::exists(rendezvous.file()));
  }
};

using Tcp = TcpTransport</*kReadsMemory=*/true>;
using TcpBytes = TcpTransport</*kReadsMemory=*/false>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, CommunicatorTest, Tcp);
INSTANTIATE_TYPED_TEST_SUITE_P(TcpBytes, CommunicatorTest, TcpBytes);

// Two ranks in each of four processes.
struct TcpThreads {
  static void RunOn(int size, const std::function<void(Communicator&)>& body) {
    const Rendezvous rendezvous;
    // an odd one lies alone in the last process
    const int num_processes = (size + 1) / 2;
    RunProcesses(num_processes, [&](int process) {
      const int count = 2 * process + 1 < size ? 2 : 1;
      const LocalRanks own =
          MakeTcpRanks(count, {.process = process,
                               .num_processes = num_processes,
                               .rendezvous = rendezvous.file()});
      RunProcesses(count, [&](int thread) {
        body(*own.ranks[static_cast<size_t>(thread)]);
      });
    });
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(TcpThreads, CommunicatorTest, TcpThreads);

// Two processes on each of four hosts, which are names here.
struct TcpHosts {
  static void RunOn(int size, const std::function<void(Communicator&)>& body) {
    const Rendezvous rendezvous;
    RunProcesses(size, [&](int process) {
      const LocalRanks own =
          MakeTcpRanks(/*count=*/1,
                       {.process = process,
                        .num_processes = size,
                        .rendezvous = rendezvous.file()},
                       {.host = fmt::format("host-{}", process / 2)});
      body(*own.ranks[0]);
    });
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(TcpHosts, CommunicatorTest, TcpHosts);

// More processes than any other test has, on one host and on eight.
TEST(TcpCommunicatorTest, SixtyFourProcessesAddAsOneWould) {
  constexpr int kProcesses = 64;
  constexpr int64_t kCount = 30'000;
  for (const int num_hosts : {1, 8}) {
    const Rendezvous rendezvous;
    RunProcesses(kProcesses, [&](int process) {
      const int host = process * num_hosts / kProcesses;
      const LocalRanks own = MakeTcpRanks(
          1,
          {.process = process,
           .num_processes = kProcesses,
           .rendezvous = rendezvous.file()},
          // that many threads of heartbeats would be most of the work
          {.heartbeat_timeout = 0ms, .host = fmt::format("host-{}", host)});
      for (const int64_t n : {int64_t{1}, kCount}) {
        std::vector<double> x(static_cast<size_t>(n), process + 1);
        own.ranks[0]->AllReduce(View(x, 0, n), Mutable(x, 0, n),
                                ReduceOp::kSum);
        EXPECT_EQ(x.front(), kProcesses * (kProcesses + 1) / 2);
        EXPECT_EQ(x.back(), kProcesses * (kProcesses + 1) / 2);
      }
    });
  }
}

TEST(TcpCommunicatorTest, MeetsAtAnAddressWithAKey) {
  const std::string address = FreeAddress();
  RunProcesses(3, [&](int process) {
    const auto group = [&](const std::string& key) {
      return TcpGroup{.process = process,
                      .num_processes = 3,
                      .rendezvous = address,
                      .key = key};
    };
    if (process == 2) {
      EXPECT_THAT(
          MessageOf<CommError>([&] { MakeTcpRanks(1, group("wrong")); }),
          MatchesRegex("tcp: rank 0 of 3 \\([^ ]+\\) at 127.0.0.1:[0-9]+ "
                       "refuses rank 2 of 3 \\([^ ]+\\) at 127.0.0.1:[0-9]+: "
                       "its key is another"));
    }
    const LocalRanks own = MakeTcpRanks(1, group("right"));
    std::vector<int32_t> x = {process};
    own.ranks[0]->AllReduce(View(x, 0, 1), Mutable(x, 0, 1), ReduceOp::kSum);
    EXPECT_EQ(x[0], 3);
  });
}

TEST(TcpCommunicatorTest, RefusesAGroupThatIsAnother) {
  const Rendezvous rendezvous;
  const auto group = [&](int process) {
    return TcpGroup{.process = process,
                    .num_processes = 2,
                    .rendezvous = rendezvous.file(),
                    .description = "replicas: 2"};
  };
  RunProcesses(2, [&](int process) {
    if (process == 1) {
      const auto refusal = [&](const TcpGroup& wrong) {
        return MessageOf<CommError>([&] { MakeTcpRanks(1, wrong); });
      };
      TcpGroup wrong = group(1);
      wrong.num_processes = 3;
      EXPECT_THAT(refusal(wrong),
                  AllOf(HasSubstr("tcp: rank 0 of 2 ("),
                        HasSubstr(" refuses rank 1 of 3 ("),
                        HasSubstr(": its group has 3 processes, want 2")));
      wrong = group(1);
      wrong.description = "replicas: 4";
      EXPECT_THAT(refusal(wrong),
                  HasSubstr("its group is 'replicas: 4', want 'replicas: 2'"));
    }
    MakeTcpRanks(1, group(process));
  });
}

// Also one of another protocol, and one that connects and says nothing.
TEST(TcpCommunicatorTest, OthersWhoConnectDoNotDisturb) {
  const std::string address = FreeAddress();
  RunProcesses(2, [&](int process) {
    if (process == 1) {
      const auto deadline = Clock::Real().Now() + 60s;
      TcpSocket stranger;
      while (!stranger.is_open()) {
        try {
          stranger = TcpSocket::Connect(TcpAddress::Parse(address), deadline);
        } catch (const CommError&) {
          // process 0 does not listen yet
        }
      }
      const std::string request(100, 'x');
      stranger.SendFrame(std::as_bytes(std::span(request)), deadline);
      EXPECT_FALSE(stranger.ReceiveFrame(1000, deadline).empty());
    }
    MakeTcpRanks(
        1, {.process = process, .num_processes = 2, .rendezvous = address});
  });
}

TEST(TcpCommunicatorTest, ASecondOneOfANumberIsRefused) {
  const Rendezvous rendezvous;
  std::atomic<int> num_refused = 0;
  // process 1 twice; process 2 comes when one of them has been refused
  RunProcesses(4, [&](int i) {
    const TcpGroup group{.process = i == 3 ? 1 : i,
                         .num_processes = 3,
                         .rendezvous = rendezvous.file()};
    if (i == 2) {
      while (num_refused == 0) std::this_thread::yield();
    }
    try {
      MakeTcpRanks(1, group);
    } catch (const CommError& e) {
      ++num_refused;
      EXPECT_THAT(e.what(), HasSubstr(" has this rank"));
    }
  });
  EXPECT_EQ(num_refused, 1);
}

TEST(TcpCommunicatorTest, ASecondRunAtTheRendezvousIsRefused) {
  const Rendezvous rendezvous;
  RunProcesses(2, [&](int process) {
    const TcpGroup group{.process = process,
                         .num_processes = 2,
                         .rendezvous = rendezvous.file()};
    if (process == 1) {
      while (!std::filesystem::exists(rendezvous.file())) {
        std::this_thread::yield();
      }
      TcpGroup second = group;
      second.process = 0;
      EXPECT_THAT(MessageOf<IoError>([&] { MakeTcpRanks(1, second); }),
                  HasSubstr("in use by process"));
    }
    MakeTcpRanks(1, group);
  });
}

// The file of a run that was killed names a port where nobody listens.
TEST(TcpCommunicatorTest, AnOldFileIsNoObstacle) {
  const Rendezvous rendezvous;
  const TcpAddress old = TcpAddress::Parse(FreeAddress());
  AtomicWriteFile(rendezvous.file(),
                  fmt::format("{} {} key\n", old.host, old.port));
  RunProcesses(2, [&](int process) {
    MakeTcpRanks(1, {.process = process,
                     .num_processes = 2,
                     .rendezvous = rendezvous.file()});
  });
}

TEST(TcpCommunicatorTest, NamesTheProcessThatDoesNotCome) {
  const Rendezvous rendezvous;
  RunProcesses(2, [&](int process) {
    const std::string message = MessageOf<CommError>([&] {
      MakeTcpRanks(1,
                   {.process = process,
                    .num_processes = 3,
                    .rendezvous = rendezvous.file()},
                   // process 1 gets its answer from process 0
                   {.timeout = process == 0 ? 5s : 60s});
    });
    EXPECT_THAT(message,
                MatchesRegex("tcp: rank 0 of 3 \\([^ ]+ at 127.0.0.1:[0-9]+\\) "
                             "waited 5 s for rank 2"));
  });
}

TEST(TcpCommunicatorTest, SaysWhereProcessZeroIsNot) {
  const Rendezvous rendezvous;
  EXPECT_THAT(
      MessageOf<CommError>([&] {
        MakeTcpRanks(
            1,
            {.process = 1, .num_processes = 2, .rendezvous = rendezvous.file()},
            {.timeout = 100ms});
      }),
      AllOf(HasSubstr("tcp: rank 1 of 2 ("),
            HasSubstr(") has not met the others in 0.1 s: "),
            HasSubstr(rendezvous.file() + " is not there")));
}

TEST(TcpCommunicatorTest, RefusesGroupsThatCannotBe) {
  EXPECT_EQ(MessageOf<ConfigError>(
                [] { MakeTcpRanks(1, {.process = 2, .num_processes = 2}); }),
            "tcp: no rank 2; allowed: 0 to 1");
  EXPECT_EQ(
      MessageOf<ConfigError>([] { MakeTcpRanks(1, {.num_processes = 2}); }),
      "tcp: several processes need a rendezvous; allowed: "
      "tcp://HOST:PORT, or a file");
  EXPECT_EQ(MessageOf<ConfigError>([] {
              MakeTcpRanks(1, {.num_processes = 2, .rendezvous = "tcp://host"});
            }),
            "'tcp://host' is not an address; allowed: tcp://HOST:PORT");
}

// Both calls are named on both sides, and the place of each side's own.
TEST(TcpCommunicatorTest, RefusesCallsThatDiffer) {
  const Rendezvous rendezvous;
  RunProcesses(2, [&](int process) {
    const LocalRanks own = MakeTcpRanks(1, {.process = process,
                                            .num_processes = 2,
                                            .rendezvous = rendezvous.file()});
    std::vector<float> x(process == 0 ? 3 : 4);
    const std::string message = MessageOf<CommError>([&] {
      const auto n = static_cast<int64_t>(x.size());
      own.ranks[0]->Run({.kind = Collective::Kind::kAllReduce,
                         .in = View(x, 0, n),
                         .out = Mutable(x, 0, n),
                         .place = "step.cc:7"});
    });
    EXPECT_THAT(message,
                AllOf(HasSubstr("the ranks call different things: rank "),
                      HasSubstr("call 1, all_reduce sum f32[3]"),
                      HasSubstr("call 1, all_reduce sum f32[4]"),
                      HasSubstr("step.cc:7")));
  });
}

TEST(TcpCommunicatorTest, AnAbortEndsTheCallOfTheOthers) {
  const Rendezvous rendezvous;
  RunProcesses(3, [&](int process) {
    const LocalRanks own = MakeTcpRanks(1,
                                        {.process = process,
                                         .num_processes = 3,
                                         .rendezvous = rendezvous.file()},
                                        {.heartbeat_interval = 20ms});
    if (process == 2) own.ranks[0]->Abort("the disk is full");
    EXPECT_THAT(MessageOf<CommError>([&] { own.ranks[0]->Barrier(); }),
                HasSubstr("the disk is full"));
  });
}

}  // namespace
}  // namespace replicant::comm
