#include "base/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/mutex.h"
#include "tests/support/turn_length.h"

namespace replicant {
namespace {

using namespace std::chrono_literals;

// Every index once, and scratch numbers below the number of threads.
void ExpectAll(int num_threads, int64_t count) {
  std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
  std::vector<std::atomic<int>> users(static_cast<size_t>(num_threads));
  ParallelForEach(num_threads, count, [&](int thread, int64_t i) {
    ASSERT_EQ(users[static_cast<size_t>(thread)].fetch_add(1), 0);
    ++calls[static_cast<size_t>(i)];
    --users[static_cast<size_t>(thread)];
  });
  for (const auto& n : calls) EXPECT_EQ(n, 1);
}

TEST(ParallelTest, CallsEachIndexOnceWithScratchOfOneThread) {
  for (const int num_threads : {1, 2, 3, 8, 2}) {  // a team grows
    for (const int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
      ExpectAll(num_threads, count);
    }
  }
}

TEST(ParallelTest, AllOfATeamHaveShortTurns) {
  if (TurnLength() == 0) GTEST_SKIP() << "this kernel has turns of one length";
  std::thread([] {
    std::array<uint64_t, 2> turns{};
    std::atomic<int> begun = 0;
    // a part that waits for the other is not of the same thread
    ParallelForEach(2, 2, [&](int thread, int64_t) {
      for (++begun; begun < 2;) std::this_thread::yield();
      turns[static_cast<size_t>(thread)] = TurnLength();
    });
    EXPECT_EQ(turns[0], 100'000);
    EXPECT_EQ(turns[1], 100'000);
  }).join();
}

TEST(ParallelTest, LoopsFollowEachOtherWithoutARest) {
  std::array<int64_t, 16> sums{};
  for (int64_t round = 0; round < 20000; ++round) {
    ParallelForEach(3, 16, [&](int /*thread*/, int64_t i) {
      sums[static_cast<size_t>(i)] += round;
    });
  }
  for (const int64_t sum : sums) EXPECT_EQ(sum, 20000 * 19999 / 2);
}

TEST(ParallelTest, PartsAreContiguousAndDependOnTheArgumentsOnly) {
  const auto parts = [](int num_threads, int64_t count) {
    std::set<std::pair<int64_t, int64_t>> seen;
    Mutex mutex;
    ParallelFor(num_threads, count, [&](int, int64_t begin, int64_t end) {
      const MutexLock lock(mutex);
      seen.emplace(begin, end);
    });
    return seen;
  };
  for (const int64_t count : {1, 5, 8, 1001}) {
    const auto first = parts(2, count);
    EXPECT_EQ(first, parts(2, count));
    int64_t at = 0;
    for (const auto& [begin, end] : first) {
      EXPECT_EQ(begin, at);
      EXPECT_LT(begin, end);
      at = end;
    }
    EXPECT_EQ(at, count);
    EXPECT_EQ(first.size(), std::min<size_t>(8, static_cast<size_t>(count)));
    EXPECT_EQ(NumParts(2, count), std::min<int64_t>(8, count));
  }
}

TEST(ParallelTest, PartOfIsThePartThatAnIndexIsIn) {
  for (const int num_threads : {1, 2, 5}) {
    for (const int64_t count : {1, 2, 7, 19, 1001}) {
      std::vector<int64_t> parts(static_cast<size_t>(count), -1);
      ParallelForParts(
          num_threads, count,
          [&](int /*thread*/, int64_t part, int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              parts[static_cast<size_t>(i)] = part;
            }
          });
      for (int64_t i = 0; i < count; ++i) {
        EXPECT_EQ(PartOf(num_threads, count, i), parts[static_cast<size_t>(i)]);
      }
      EXPECT_EQ(parts.back(), NumParts(num_threads, count) - 1);
    }
  }
}

// A thread that loses its processor holds up one part: the others take the rest
// of its share.
TEST(ParallelTest, AThreadThatIsHeldUpLeavesItsShareToTheOthers) {
  std::atomic<bool> is_held{false};
  std::atomic<int> done{0};
  ParallelForEach(2, 64, [&](int /*thread*/, int64_t /*i*/) {
    if (!is_held.exchange(true)) {
      while (done < 63) std::this_thread::sleep_for(1ms);
    }
    ++done;
  });
  EXPECT_EQ(done, 64);
}

TEST(ParallelTest, TheFirstExceptionIsThrownAndTheNextLoopIsWhole) {
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> calls{0};
    EXPECT_THROW(ParallelForEach(4, 100,
                                 [&](int /*thread*/, int64_t i) {
                                   ++calls;
                                   if (i % 10 == 3) {
                                     throw std::runtime_error("part");
                                   }
                                 }),
                 std::runtime_error);
    EXPECT_LE(calls, 100);
    ExpectAll(4, 100);
  }
}

TEST(ParallelTest, ThreadsHaveTeamsOfTheirOwn) {
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int round = 0; round < 200; ++round) ExpectAll(3, 50);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ParallelDeathTest, ALoopWithinALoopIsRefused) {
  const auto nest = [] {
    ParallelForEach(2, 2, [](int /*thread*/, int64_t /*i*/) {
      ParallelForEach(2, 2, [](int /*thread*/, int64_t /*i*/) {});
    });
  };
  EXPECT_DEATH(nest(), "a loop within a loop");
}

#if defined(__x86_64__)
TEST(ParallelTest, HelpersComputeWithTheSettingsOfTheCaller) {
  constexpr unsigned kFlush = 0x8040;  // FTZ and DAZ
  const unsigned old = _mm_getcsr();
  for (const unsigned flush : {kFlush, 0U, kFlush}) {
    _mm_setcsr((old & ~kFlush) | flush);
    std::atomic<int> others{0};
    ParallelForEach(3, 300, [&](int /*thread*/, int64_t /*i*/) {
      if ((_mm_getcsr() & kFlush) != flush) ++others;
    });
    EXPECT_EQ(others, 0);
  }
  _mm_setcsr(old);
}
#endif

TEST(ParallelTest, HelpersLeaveSignalsToTheCaller) {
  std::atomic<int> open{0};
  std::atomic<int> helpers{0};
  for (int round = 0; helpers == 0 && round < 1000; ++round) {
    ParallelForEach(2, 8, [&](int thread, int64_t /*i*/) {
      if (thread == 0) return std::this_thread::sleep_for(1ms);
      ++helpers;
      sigset_t blocked;
      ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
      if (::sigismember(&blocked, SIGTERM) == 0) ++open;
    });
  }
  EXPECT_GT(helpers, 0);
  EXPECT_EQ(open, 0);
}

}  // namespace
}  // namespace replicant
