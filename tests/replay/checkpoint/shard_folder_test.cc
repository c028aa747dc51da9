#include "replay/checkpoint/shard_folder.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/fs.h"
#include "tests/support/message_of.h"

namespace replicant::replay {
namespace {

namespace fs = std::filesystem;

// The first file that a service leaves in its folder.
void MakeUsed(const fs::path& folder) {
  fs::create_directories(folder);
  AtomicWriteFile(folder / "layout.yaml", "");
}

TEST(ShardFolderTest, OneServiceHasTheFolderItself) {
  EXPECT_EQ(ShardFolder("/r", 0, 1), "/r");
  EXPECT_EQ(ShardFolder("/r", 1, 3), "/r/shard-1-of-3");
}

TEST(ShardFolderTest, ANewFolderTakesAnyNumber) {
  const TemporaryFolder folder;
  CheckNumShards(folder.path() / "missing", 3);
  fs::create_directories(ShardFolder(folder.path(), 0, 2));
  CheckNumShards(folder.path(), 3);
}

// The number of shards of a run changed: no data is deleted, and the message
// says both numbers.
TEST(ShardFolderTest, RefusesAnotherNumberOfShards) {
  const TemporaryFolder folder;
  MakeUsed(ShardFolder(folder.path(), 1, 2));
  CheckNumShards(folder.path(), 2);
  for (const int64_t other : {1, 3}) {
    EXPECT_EQ(replicant::testing::MessageOf<ConfigError>(
                  [&] { CheckNumShards(folder.path(), other); }),
              "replay.shards: " + std::to_string(other) + ", but " +
                  folder.path().string() +
                  " holds checkpoints of 2; a replay keeps the number of "
                  "shards that it began with; hint: --set replay.shards=2, or "
                  "choose another folder for a new replay");
  }
  const TemporaryFolder single;
  MakeUsed(single.path());
  CheckNumShards(single.path(), 1);
  EXPECT_THROW(CheckNumShards(single.path(), 2), ConfigError);
}

}  // namespace
}  // namespace replicant::replay
