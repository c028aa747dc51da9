#include "replicator/comm/thread_communicator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "base/thread.h"
#include "tests/replicator/comm/communicator_conformance.h"

namespace replicant::comm {
namespace {

using replicant::testing::MessageOf;
using ::testing::Test;

void RunThreads(int size, const CommunicatorOptions& options,
                const std::function<void(Communicator&)>& body) {
  const auto communicators = MakeThreadCommunicators(size, options);
  std::vector<std::unique_ptr<Thread>> threads;
  threads.reserve(communicators.size());
  for (const auto& communicator : communicators) {
    threads.push_back(std::make_unique<Thread>(
        "rank", [&](const Thread::StopToken&) { body(*communicator); }));
  }
  for (const auto& thread : threads) thread->Join();
}

struct ThreadTransport {
  static void RunOn(int size, const std::function<void(Communicator&)>& body) {
    RunThreads(size, {}, body);
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Threads, CommunicatorTest, ThreadTransport);

// Long for those that come, as they all start at once.
constexpr CommunicatorOptions kShort{.timeout = std::chrono::seconds(5)};

TEST(ThreadCommunicatorTest, NamesTheRankThatDoesNotCome) {
  RunThreads(3, kShort, [](Communicator& comm) {
    std::vector<float> x(4);
    comm.Barrier();
    if (comm.rank() == 1) return;
    const std::string message = MessageOf<CommError>([&] {
      comm.AllReduce(View(x, 0, 4), Mutable(x, 0, 4), ReduceOp::kSum);
    });
    // whoever waits longest says it for both
    EXPECT_TRUE(
        message.ends_with(" of 3 waited 5 s in call 2, all_reduce "
                          "sum f32[4], for rank 1 (in call 1)"))
        << message;
    // and nothing goes any more
    EXPECT_EQ(MessageOf<CommError>([&] { comm.Barrier(); }), message);
  });
}

TEST(ThreadCommunicatorTest, AnAbortEndsTheCallOfTheOthers) {
  RunThreads(2, {}, [](Communicator& comm) {
    if (comm.rank() == 1) {
      comm.Abort("its replay is gone");
      return;
    }
    EXPECT_EQ(MessageOf<CommError>([&] { comm.Barrier(); }),
              "threads, rank 0 of 2: its replay is gone");
  });
}

TEST(ThreadCommunicatorTest, RefusesCallsThatDiffer) {
  RunThreads(2, {}, [](Communicator& comm) {
    std::vector<float> x(4);
    const int64_t n = comm.rank() + int64_t{3};
    EXPECT_EQ(
        MessageOf<CommError>([&] {
          comm.AllReduce(View(x, 0, n), Mutable(x, 0, n), ReduceOp::kSum);
        }),
        "the ranks call different things: rank 0 all_reduce sum f32[3], rank 1 "
        "all_reduce sum f32[4]");
  });
}

TEST(ThreadCommunicatorTest, AFailedCallFailsAllLaterOnesOfAQueue) {
  RunThreads(2, {}, [](Communicator& comm) {
    if (comm.rank() == 1) {
      comm.Abort("gone");
      return;
    }
    CollectiveQueue queue(&comm);
    CollectiveQueue::Work first{Collective{}};
    CollectiveQueue::Work second{Collective{}};
    queue.Start(first);
    queue.Start(second);
    EXPECT_EQ(MessageOf<CommError>([&] { queue.Wait(first); }),
              "threads, rank 0 of 2: gone");
    EXPECT_THROW(queue.Wait(second), CommError);
    EXPECT_THROW(queue.Run(first), CommError);
  });
}

TEST(ThreadCommunicatorTest, WantsARank) {
  EXPECT_THROW(MakeThreadCommunicators(0), InvalidArgument);
}

}  // namespace
}  // namespace replicant::comm
