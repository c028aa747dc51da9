#include "core/base/file_lock.h"

#include <gtest/gtest.h>

#include <optional>

#include "core/base/error.h"
#include "core/base/fs.h"
#include "core/base/process.h"
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

TEST(FileLockTest, AFolderThatIsMissingIsNamed) {
  EXPECT_THROW(FileLock("/no/such/folder/lock", "it"), IoError);
}

}  // namespace
}  // namespace replicant
