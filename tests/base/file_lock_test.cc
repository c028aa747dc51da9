#include "base/file_lock.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "tests/support/log_lines.h"
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

// Makes flock() fail from now on, as on a file system without locks.
void TakeLocksAway() {
  std::array<sock_filter, 4> filter = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program = {filter.size(), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::_Exit(2);
  }
}

// Would catch a run that a Lustre without the mount option `flock` stops.
TEST(FileLockDeathTest, AFileSystemWithoutLocksGivesAWarning) {
  const TemporaryFolder folder;
  const auto take_all = [&] {
    TakeLocksAway();
    const FileLock first(folder.path() / "lock", "the folder");
    const FileLock second(folder.path() / "lock", "the folder");
    const FileLock awaited = FileLock::Await(folder.path() / "lock");
    std::fprintf(stderr, "all taken\n");
    std::exit(0);
  };
  spdlog::set_default_logger(spdlog::stderr_logger_mt("test"));
  EXPECT_EXIT(take_all(), ::testing::ExitedWithCode(0),
              "lock: the file system has no locks .*mount option "
              "`flock`(.|\n)*all taken");
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

// Would catch a program that stands still without a word.
TEST(FileLockTest, AWaitNamesTheOwner) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "lock";
  const testing::LogLines log(spdlog::level::info);
  std::optional<FileLock> owner(std::in_place, file, "the folder");
  std::thread waiter([&] { static_cast<void>(FileLock::Await(file)); });
  while (log.lines().empty()) std::this_thread::yield();
  owner.reset();
  waiter.join();
  EXPECT_EQ(log.lines(), std::vector<std::string>{
                             fmt::format("waits for process {}, which holds {}",
                                         HostAndPid(), file.string())});
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
