#include "base/metrics/append_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "tests/support/log_lines.h"
#include "tests/support/message_of.h"

namespace replicant::metrics {
namespace {

using ::testing::ElementsAre;
using testing::LogLines;
using testing::MessageOf;

// Limits how large a file of this process may grow: the write that passes the
// limit is cut short and the next fails, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t size_bytes) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{size_bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_{};
  void (*old_handler_)(int) = nullptr;
};

TEST(AppendFileTest, RecordsReachTheFileAtFlushAndAtTheEnd) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "records";
  {
    AppendFile file(path, AppendFile::Mode::kCreate);
    file.Append("one,");
    EXPECT_EQ(ReadFile(path), "");
    file.Flush();
    EXPECT_EQ(ReadFile(path), "one,");
    file.Append("two,");
  }
  EXPECT_EQ(ReadFile(path), "one,two,");
  AppendFile(path, AppendFile::Mode::kAppend).Append("three");
  EXPECT_EQ(ReadFile(path), "one,two,three");
}

// Would catch memory that grows without end where nobody flushes.
TEST(AppendFileTest, AMebibyteOfRecordsIsFlushedUnasked) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "records";
  AppendFile file(path, AppendFile::Mode::kCreate);
  const std::string record(size_t{1} << 19, 'x');
  file.Append(record);
  file.Append(record);
  EXPECT_EQ(std::filesystem::file_size(path), 0U);
  file.Append(record);
  EXPECT_EQ(std::filesystem::file_size(path), size_t{1} << 20);
}

TEST(AppendFileTest, AnExistingFileIsNotCreatedAgain) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "records";
  AtomicWriteFile(path, "precious");
  EXPECT_EQ(
      MessageOf<IoError>([&] { AppendFile(path, AppendFile::Mode::kCreate); }),
      "open: " + path.string() + ": File exists");
  EXPECT_EQ(ReadFile(path), "precious");
}

TEST(AppendFileTest, AMissingFolderIsNamed) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "missing" / "records";
  EXPECT_EQ(
      MessageOf<IoError>([&] { AppendFile(path, AppendFile::Mode::kAppend); }),
      "open: " + path.string() + ": No such file or directory");
}

// Would catch a torn record in the middle of the file, behind which a reader
// of TFRecords sees nothing.
TEST(AppendFileTest, AWriteThatFailsHalfWayIsTakenBack) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "records";
  AppendFile file(path, AppendFile::Mode::kCreate);
  file.Append("first.");
  file.Flush();
  {
    const FileSizeLimit limit(10);
    file.Append("second.");
    file.Append("third.");
    file.Flush();
  }
  EXPECT_EQ(file.num_dropped(), 2);
  EXPECT_EQ(ReadFile(path), "first.");

  // and there is space again
  file.Append("fourth.");
  file.Flush();
  EXPECT_EQ(ReadFile(path), "first.fourth.");
}

// Would catch a log that a full disk fills, or a training that it ends.
TEST(AppendFileTest, AFullDiskIsCountedAndNamedOnceAMinute) {
  FakeClock clock;
  AppendFile file("/dev/full", AppendFile::Mode::kAppend, {.clock = &clock});
  const LogLines log;
  for (int i = 0; i < 3; ++i) {
    file.Append("x");
    file.Flush();
  }
  EXPECT_EQ(file.num_dropped(), 3);
  EXPECT_THAT(log.lines(),
              ElementsAre("/dev/full: 1 records dropped: No space left on "
                          "device"));
  clock.Advance(std::chrono::minutes(1));
  file.Append("x");
  file.Append("x");
  file.Flush();
  EXPECT_EQ(file.num_dropped(), 5);
  ASSERT_EQ(log.lines().size(), 2U);
  EXPECT_EQ(log.lines().back(),
            "/dev/full: 4 records dropped: No space left on device");
}

// TensorBoard reads no file whose first record is not its version.
TEST(AppendFileTest, TheHeaderFollowsOnceThereIsRoom) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "records";
  std::optional<AppendFile> file;
  {
    const FileSizeLimit limit(1);
    file.emplace(path, AppendFile::Mode::kCreate,
                 AppendFileOptions{.header = "head:"});
  }
  EXPECT_EQ(ReadFile(path), "");
  file->Append("one,");
  file->Flush();
  EXPECT_EQ(ReadFile(path), "head:one,");
  file->Append("two,");
  file->Flush();
  EXPECT_EQ(ReadFile(path), "head:one,two,");
}

TEST(AppendFileTest, AStalledDiskHoldsUpNobodyAndTakesBoundedMemory) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "records";
  std::promise<void> disk;
  DiskQueue queue;
  {
    AppendFile file(path, AppendFile::Mode::kCreate, {.disk = &queue});
    queue.Post([&] { disk.get_future().wait(); });
    const std::string record(size_t{1} << 18, 'x');
    // one mebibyte that the disk has, another that waits, and two records more
    for (int i = 0; i < 10; ++i) file.Append(record);
    EXPECT_EQ(file.num_dropped(), 2);
    EXPECT_EQ(std::filesystem::file_size(path), 0U);
    disk.set_value();
  }
  EXPECT_TRUE(queue.Await(std::chrono::minutes(1)));
  EXPECT_EQ(std::filesystem::file_size(path), size_t{1} << 21);
}

}  // namespace
}  // namespace replicant::metrics
