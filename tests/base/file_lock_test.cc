#include "base/file_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "tests/support/message_of.h"

namespace replicant {
namespace {

using testing::MessageOf;

TEST(FileLockTest, ASecondOwnerIsRefusedWithTheNameOfTheFirst) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "lock";
  {
    const FileLock lock(file, "the folder");
    EXPECT_EQ(MessageOf<IoError>([&] { FileLock(file, "the folder"); }),
              "the folder: in use by process " + HostAndPid());
  }
  EXPECT_NO_THROW(FileLock(file, "the folder"));
}

TEST(FileLockTest, ADeadOwnerHoldsNothing) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "lock";
  AtomicWriteFile(file, "a longer name of a host than this one/4711");
  const FileLock lock(file, "the folder");
  EXPECT_EQ(MessageOf<IoError>([&] { FileLock(file, "the folder"); }),
            "the folder: in use by process " + HostAndPid());
}

TEST(FileLockTest, AMovedLockIsHeldOnce) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "lock";
  std::optional<FileLock> lock(std::in_place, file, "the folder");
  std::optional<FileLock> moved(std::move(*lock));
  lock.reset();
  EXPECT_THROW(FileLock(file, "the folder"), IoError);
  moved.reset();
  EXPECT_NO_THROW(FileLock(file, "the folder"));
}

// catches a lock that is taken twice, and one that waits for ever
TEST(FileLockTest, AnAwaitedLockComesWhenItsOwnerLetsGo) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "lock";
  constexpr int kThreads = 4;
  constexpr int kTurns = 50;
  std::atomic<int> owners = 0;
  std::atomic<int> turns = 0;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < kTurns; ++turn) {
        const FileLock lock = FileLock::Await(file);
        EXPECT_EQ(++owners, 1);
        // lost by two that add at once
        turns = turns + 1;
        --owners;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(turns, kThreads * kTurns);
  EXPECT_EQ(ReadFile(file), HostAndPid());
}

TEST(FileLockTest, AnAwaitedLockRefusesOthers) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "lock";
  const FileLock lock = FileLock::Await(file);
  EXPECT_EQ(MessageOf<IoError>([&] { FileLock(file, "the folder"); }),
            "the folder: in use by process " + HostAndPid());
  EXPECT_THROW(FileLock::Await("/no/such/folder/lock"), IoError);
}

TEST(FileLockTest, AFolderThatIsMissingIsNamed) {
  EXPECT_THROW(FileLock("/no/such/folder/lock", "it"), IoError);
}

}  // namespace
}  // namespace replicant
