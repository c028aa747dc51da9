#include "base/rpc/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace replicant::rpc {
namespace {

int64_t CountOpenFiles() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

TEST(SharedMemoryTest, BothSidesSeeTheSameBytes) {
  const auto created = SharedMemory::Create(10'000);
  std::string why;
  const auto opened = SharedMemory::Open(created->handle(), &why);
  ASSERT_NE(opened, nullptr) << why;
  ASSERT_EQ(created->bytes().size(), 10'000u);
  ASSERT_EQ(opened->bytes().size(), 10'000u);
  EXPECT_NE(created->bytes().data(), opened->bytes().data());
  created->bytes().front() = std::byte{1};
  created->bytes().back() = std::byte{2};
  EXPECT_EQ(opened->bytes().front(), std::byte{1});
  EXPECT_EQ(opened->bytes().back(), std::byte{2});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(created->bytes().data()) % 4096, 0u);
}

TEST(SharedMemoryTest, TheCreatorsEndIsSeen) {
  auto created = SharedMemory::Create(100);
  std::string why;
  const auto opened = SharedMemory::Open(created->handle(), &why);
  ASSERT_NE(opened, nullptr) << why;
  EXPECT_FALSE(opened->IsWithdrawn());
  created.reset();
  EXPECT_TRUE(opened->IsWithdrawn());
  // and the bytes are still there for who looks at them
  opened->bytes().back() = std::byte{1};
}

TEST(SharedMemoryTest, ABlockOfAnotherTokenSizeOrProcessIsNotOpened) {
  const auto created = SharedMemory::Create(100);
  const auto why_not = [&](auto change) {
    SharedMemoryHandle handle = created->handle();
    change(handle);
    std::string why;
    EXPECT_EQ(SharedMemory::Open(handle, &why), nullptr);
    return why;
  };
  EXPECT_EQ(why_not([](SharedMemoryHandle& h) { ++h.token[1]; }),
            "the memory file does not hold the token");
  EXPECT_EQ(why_not([](SharedMemoryHandle& h) { ++h.size_bytes; }),
            "the memory file is not sealed, not allocated in full, or of "
            "another size");
  EXPECT_EQ(why_not([](SharedMemoryHandle& h) { h.size_bytes = ~0ull; }),
            "the memory file is not sealed, not allocated in full, or of "
            "another size");
  EXPECT_EQ(why_not([](SharedMemoryHandle& h) { h.pid = 0x7FFFFFFF; }),
            "/proc/2147483647/fd/" + std::to_string(created->handle().fd) +
                ": No such file or directory");
}

// A client could name any file of any process of this user.
TEST(SharedMemoryTest, NothingButASealedMemoryFileIsOpened) {
  const auto why_not = [](int fd) {
    SharedMemoryHandle handle;
    handle.pid = static_cast<uint32_t>(getpid());
    handle.fd = static_cast<uint32_t>(fd);
    std::string why;
    EXPECT_EQ(SharedMemory::Open(handle, &why), nullptr);
    close(fd);
    return why;
  };
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  close(pipe_fds[1]);
  EXPECT_NE(why_not(pipe_fds[0]).find("is not a sealed memory file"),
            std::string::npos);
  EXPECT_NE(
      why_not(open("/dev/null", O_RDWR)).find("is not a sealed memory file"),
      std::string::npos);
  // one that could be cut while it is written to
  const int unsealed = memfd_create("replicant", MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(unsealed, 4096), 0);
  EXPECT_EQ(why_not(unsealed),
            "the memory file is not sealed, not allocated in full, or of "
            "another size");
}

TEST(SharedMemoryTest, FailedAttemptsAndEndedBlocksLeaveNoFileOpen) {
  const int64_t before = CountOpenFiles();
  {
    const auto created = SharedMemory::Create(100);
    SharedMemoryHandle handle = created->handle();
    std::string why;
    const auto opened = SharedMemory::Open(handle, &why);
    handle.token[0] += 1;
    EXPECT_EQ(SharedMemory::Open(handle, &why), nullptr);
  }
  EXPECT_EQ(CountOpenFiles(), before);
}

TEST(SharedMemoryTest, AKilledCreatorsBlockStaysReadableAndIsNotFoundAgain) {
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto created = SharedMemory::Create(100);
    created->bytes()[7] = std::byte{7};
    const SharedMemoryHandle handle = created->handle();
    if (write(pipe_fds[1], &handle, sizeof(handle)) != sizeof(handle)) _exit(1);
    pause();
  }
  SharedMemoryHandle handle;
  ASSERT_EQ(read(pipe_fds[0], &handle, sizeof(handle)),
            static_cast<ssize_t>(sizeof(handle)));
  std::string why;
  const auto opened = SharedMemory::Open(handle, &why);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  ASSERT_NE(opened, nullptr) << why;
  EXPECT_EQ(opened->bytes()[7], std::byte{7});
  EXPECT_EQ(SharedMemory::Open(handle, &why), nullptr);
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

}  // namespace
}  // namespace replicant::rpc
