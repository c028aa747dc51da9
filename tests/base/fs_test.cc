#include "base/fs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/process.h"
#include "tests/support/message_of.h"

namespace replicant {
namespace {

using testing::MessageOf;

namespace fs = std::filesystem;

int EntriesOf(const fs::path& folder) {
  return static_cast<int>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(AtomicFileTest, CommitReplacesTheOldFileAndLeavesNothingElse) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "state";
  AtomicWriteFile(path, "old");
  AtomicWriteFile(path, std::string("new\0bytes", 9));
  EXPECT_EQ(ReadFile(path), std::string("new\0bytes", 9));
  EXPECT_EQ(EntriesOf(folder.path()), 1);
}

TEST(AtomicFileTest, WithoutCommitTheOldFileStaysAndTheNewOneGoes) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "state";
  AtomicWriteFile(path, "old");
  {
    AtomicFile file(path);
    file.Write("half a fi");
    EXPECT_EQ(ReadFile(path), "old");
  }
  EXPECT_EQ(ReadFile(path), "old");
  EXPECT_EQ(EntriesOf(folder.path()), 1);
}

// Would catch a temporary name shared by two writers of one file.
TEST(AtomicFileTest, TwoWritersOfOnePathDoNotMix) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "state";
  AtomicFile first(path);
  AtomicFile second(path);
  first.Write("first");
  second.Write("second");
  second.Commit();
  first.Commit();
  EXPECT_EQ(ReadFile(path), "first");
}

// Returns the id of a process that has ended.
pid_t DeadProcess() {
  Process process({.command = {"true"}});
  const pid_t pid = process.pid();
  process.Wait();
  return pid;
}

TEST(TemporaryPathTest, OnlyThoseOfDeadProcessesAreRemoved) {
  const TemporaryFolder folder;
  const auto path = [&](const std::string& name) {
    return folder.path() / name;
  };
  const AtomicFile unfinished(path("state"));
  const std::string dead = std::to_string(DeadProcess());
  AtomicWriteFile(path("state.tmp-" + dead + "-0"), "half a fi");
  MakeFolders(path("step-12.tmp-" + dead + "-7") / "deeper");
  // of a process that had the number of this one
  AtomicWriteFile(path(fmt::format("e.tmp-{}-1000000", ::getpid())), "half");
  for (const char* name :
       {"state", "a.tmp-x-1", "b.tmp-", "c.tmp-1", "d.tmp-999999-1.log"}) {
    AtomicWriteFile(path(name), "stays");
  }
  EXPECT_EQ(EntriesOf(folder.path()), 9);
  EXPECT_EQ(RemoveStaleTemporaries(folder.path()), 3);
  EXPECT_EQ(EntriesOf(folder.path()), 6);
  EXPECT_EQ(RemoveStaleTemporaries(path("no folder")), 0);
}

TEST(AtomicFileTest, ErrorNamesTheFileAndTheReason) {
  const std::string message =
      MessageOf<IoError>([] { AtomicFile file("/no/such/folder/state"); });
  EXPECT_TRUE(message.starts_with("create: /no/such/folder/state.tmp-"))
      << message;
  EXPECT_TRUE(message.ends_with(": No such file or directory")) << message;
}

// A disk that is full must be an error, not a short file. The limit on the size
// of a file stands in for the disk.
TEST(AtomicFileTest, FullDiskIsAnErrorAndTheOldFileStays) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "state";
  AtomicWriteFile(path, "old");

  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const rlimit limit{4096, old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  const std::string message = MessageOf<IoError>(
      [&] { AtomicWriteFile(path, std::string(5000, 'x')); });
  ::signal(SIGXFSZ, old_handler);
  ::setrlimit(RLIMIT_FSIZE, &old_limit);

  EXPECT_TRUE(message.starts_with("write: " + path.string())) << message;
  EXPECT_TRUE(message.ends_with(": File too large")) << message;
  EXPECT_EQ(ReadFile(path), "old");
  EXPECT_EQ(EntriesOf(folder.path()), 1);
}

TEST(AtomicFileDeathTest, WriteAfterCommitIsABug) {
  const TemporaryFolder folder;
  AtomicFile file(folder.path() / "state");
  file.Commit();
  EXPECT_DEATH(file.Write("more"), "after Commit");
}

TEST(ReadFileTest, ReadsAFileWhoseSizeIsNotKnownBefore) {
  EXPECT_TRUE(ReadFile("/proc/self/status").starts_with("Name:"));
}

TEST(ReadFileTest, LimitHoldsToTheByte) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "bytes";
  AtomicWriteFile(path, std::string(10'000, 'x'));
  EXPECT_EQ(ReadFile(path, 10'000).size(), 10'000U);
  EXPECT_EQ(MessageOf<IoError>([&] { ReadFile(path, 9'999); }),
            "read: " + path.string() + ": larger than the allowed 9999 bytes");
}

TEST(ReadFileTest, MissingFileAndFolderAreErrors) {
  EXPECT_EQ(MessageOf<IoError>([] { ReadFile("/no/such/file"); }),
            "open: /no/such/file: No such file or directory");
  EXPECT_EQ(MessageOf<IoError>([] { ReadFile("/proc"); }),
            "read: /proc: Is a directory");
}

TEST(TemporaryFolderTest, GoesWithAllItHolds) {
  fs::path path;
  {
    const TemporaryFolder folder("some-test");
    path = folder.path();
    MakeFolders(path / "a" / "b");
    AtomicWriteFile(path / "a" / "b" / "file", "x");
    EXPECT_TRUE(fs::exists(path / "a" / "b" / "file"));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(SyncFolderTest, TakesFoldersOnly) {
  const TemporaryFolder folder;
  SyncFolder(folder.path());
  const fs::path path = folder.path() / "file";
  AtomicWriteFile(path, "x");
  EXPECT_EQ(MessageOf<IoError>([&] { SyncFolder(path); }),
            "open folder: " + path.string() + ": Not a directory");
}

TEST(TemporaryFolderTest, ErrorNamesTheVariableThatIsWrong) {
  const fs::path parent = TemporaryFolder().path().parent_path();
  ::setenv("TMPDIR", "/no/such/folder", /*overwrite=*/1);
  const std::string message =
      MessageOf<IoError>([] { const TemporaryFolder folder; });
  ::setenv("TMPDIR", parent.c_str(), /*overwrite=*/1);
  EXPECT_EQ(
      message,
      "TMPDIR=/no/such/folder: No such file or directory; expected a folder");
}

// Would catch an exception of the library's own, which names no key.
TEST(WhyMissingTest, SaysWhatIsWrongWithAPath) {
  const TemporaryFolder folder;
  EXPECT_EQ(WhyMissing(folder.path()), "");
  EXPECT_EQ(WhyMissing(folder.path() / "none"), "no such path");
  EXPECT_EQ(WhyMissing(folder.path() / std::string(300, 'x')),
            "File name too long");
}

}  // namespace
}  // namespace replicant
