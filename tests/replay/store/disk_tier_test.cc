#include "replay/store/disk_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "replay/table/shard.h"
#include "tests/replay/checkpoint/file_size_limit.h"
#include "tests/support/message_of.h"

namespace replicant::replay {
namespace {

using ::testing::HasSubstr;

constexpr StepShape kShape = {.observation_bytes = 4000};

// One step, whose bytes are `value`; a separate episode unless it is open.
std::vector<std::byte> Block(uint64_t value, bool is_open = false) {
  ChunkBuilder builder(kShape, value, 0);
  const std::vector<std::byte> row(4000, static_cast<std::byte>(value));
  builder.AddStep(row, {}, 1.0f, 1.0f);
  if (!is_open) builder.AddLastObservation(row);
  return builder.Finish({});
}
// Bytes of memory of one Block().
constexpr int64_t kChunkBytes = 8040 + kChunkOverheadBytes;

int64_t NumFiles(const std::filesystem::path& folder) {
  const auto files = std::filesystem::directory_iterator(folder);
  return std::distance(begin(files), end(files));
}

TEST(DiskTierTest, AChunkComesBackAsItWas) {
  const TemporaryFolder folder;
  DiskTier tier({.folder = folder.path(), .max_bytes = 1 << 20});
  Chunk chunk(Block(7), kShape);
  chunk.serial = 1;
  chunk.writer = 2;
  chunk.sequence = 3;
  const DiskTier::Moved moved = tier.Write(chunk, kShape);
  moved.chunk->WillRead();
  EXPECT_TRUE(moved.chunk->is_on_disk);
  EXPECT_TRUE(std::ranges::equal(moved.chunk->block, chunk.block));
  EXPECT_EQ(moved.chunk->view.episode(), 7u);
  EXPECT_EQ(moved.chunk->serial, 1u);
  EXPECT_EQ(moved.chunk->writer, 2u);
  EXPECT_EQ(moved.chunk->sequence, 3u);
  // a file without a name
  EXPECT_EQ(NumFiles(folder.path()), 0);
}

// Files of 16 KiB hold one chunk each.
TEST(DiskTierTest, AFileIsFreedWithItsLastUseAndReadableBeyond) {
  const TemporaryFolder folder;
  DiskTier tier({.folder = folder.path(), .max_bytes = 1 << 20});
  const Chunk chunk(Block(7), kShape);
  std::vector<DiskTier::Moved> moved;
  while (tier.HasRoomFor(chunk)) moved.push_back(tier.Write(chunk, kShape));
  EXPECT_GT(tier.size_bytes(), (1 << 20) - 10'000);
  EXPECT_LE(tier.size_bytes(), 1 << 20);
  const std::shared_ptr<const Chunk> pinned = moved.front().chunk;
  moved.erase(moved.begin(), moved.begin() + 100);
  EXPECT_TRUE(tier.HasRoomFor(chunk));
  EXPECT_TRUE(std::ranges::equal(pinned->block, chunk.block));
  moved.clear();
  // the one that is written to stays
  EXPECT_LE(tier.size_bytes(), 20'000);
}

TEST(DiskTierTest, RemovesWhatAKilledProcessLeft) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "tier-3.tmp") << "x";
  std::ofstream(folder.path() / "notes.txt") << "x";
  const DiskTier tier({.folder = folder.path(), .max_bytes = 1 << 20});
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "tier-3.tmp"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "notes.txt"));
}

TEST(DiskTierTest, SaysWhatItCannotUse) {
  const TemporaryFolder folder;
  EXPECT_EQ(replicant::testing::MessageOf<InvalidArgument>([&] {
              const DiskTier tier({.folder = folder.path(), .max_bytes = 9});
            }),
            "disk tier: max_bytes 9 must be >= 1048576");
  std::ofstream(folder.path() / "file") << "x";
  EXPECT_THAT(replicant::testing::MessageOf<IoError>([&] {
                const DiskTier tier(
                    {.folder = folder.path() / "file", .max_bytes = 1 << 20});
              }),
              HasSubstr((folder.path() / "file").string()));
}

// A shard with memory for ten chunks.
ShardConfig Config(const std::filesystem::path& folder) {
  ShardConfig config;
  config.shape = kShape;
  config.max_bytes = 10 * kChunkBytes;
  config.disk = {.folder = folder, .max_bytes = 1 << 20};
  config.tables = {{.name = "t",
                    .max_size = 1000,
                    .sampler = SelectorKind::kUniform,
                    .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                                     .min_size_to_sample = 1}}};
  return config;
}

void ExpectWholeItems(Shard& shard) {
  SampledBatch batch;
  ASSERT_EQ(shard.TrySample(0, 500, "test", &batch), 500);
  for (const SampledItem& item : batch.items) {
    const Chunk& chunk = batch.ChunkOf(item, 0);
    for (const std::byte b : chunk.view.Observation(0)) {
      ASSERT_EQ(b, static_cast<std::byte>(chunk.view.episode()));
    }
  }
}

TEST(DiskTierTest, BeyondItsLimitTheOldestChunksAreEvicted) {
  const TemporaryFolder folder;
  FakeClock clock;
  Shard shard(Config(folder.path()), &clock);
  for (uint64_t i = 1; i <= 500; ++i) {
    ASSERT_EQ(shard.TryInsert(1, i, Block(i)), InsertResult::kInserted);
    const ShardStatus status = shard.Status();
    ASSERT_LE(status.size_bytes, shard.config().max_bytes);
    ASSERT_LE(status.disk_bytes, 1 << 20);
    ASSERT_EQ(status.tables[0].size, status.num_chunks);
    ASSERT_EQ(status.tables[0].size + status.evicted_items,
              static_cast<int64_t>(i));
  }
  const ShardStatus status = shard.Status();
  // what the chunks on the disk keep in memory takes from the ten
  EXPECT_GE(status.num_chunks_on_disk, 60);
  EXPECT_EQ(status.disk_errors, 0);
  ExpectWholeItems(shard);
}

TEST(DiskTierTest, AFullDiskIsSaidAndCostsTheOldestStepsInMemoryOnly) {
  const TemporaryFolder folder;
  FakeClock clock;
  Shard shard(Config(folder.path()), &clock);
  uint64_t sequence = 0;
  const auto insert = [&](int count) {
    for (int i = 0; i < count; ++i) {
      ++sequence;
      ASSERT_EQ(shard.TryInsert(1, sequence, Block(sequence)),
                InsertResult::kInserted);
    }
  };
  insert(30);
  const int64_t on_disk = shard.Status().num_chunks_on_disk;
  EXPECT_GE(on_disk, 20);
  {
    const testing::FileSizeLimit full_disk(100);
    insert(5);
    const ShardStatus status = shard.Status();
    EXPECT_EQ(status.disk_errors, 5);
    EXPECT_EQ(status.evicted_items, 5);
    EXPECT_EQ(status.num_chunks_on_disk, on_disk);
    EXPECT_LE(status.size_bytes, shard.config().max_bytes);
  }
  // with room again it continues
  insert(5);
  EXPECT_EQ(shard.Status().disk_errors, 5);
  EXPECT_EQ(shard.Status().evicted_items, 5);
  EXPECT_GT(shard.Status().num_chunks_on_disk, on_disk);
  ExpectWholeItems(shard);
}

// A writer that stands still holds its chunk, and no other.
TEST(DiskTierTest, AnOpenEpisodeOnTheDiskGoesOn) {
  const TemporaryFolder folder;
  FakeClock clock;
  Shard shard(Config(folder.path()), &clock);
  ASSERT_EQ(shard.TryInsert(2, 1, Block(1, /*is_open=*/true)),
            InsertResult::kInserted);
  for (uint64_t i = 1; i <= 500; ++i) {
    ASSERT_EQ(shard.TryInsert(1, i, Block(i)), InsertResult::kInserted);
  }
  ChunkBuilder last(kShape, 1, 1);
  const std::vector<std::byte> row(4000, std::byte{1});
  last.AddLastObservation(row);
  const int64_t inserts = shard.Status().tables[0].inserts;
  ASSERT_EQ(shard.TryInsert(2, 2, last.Finish({})), InsertResult::kInserted);
  EXPECT_EQ(shard.Status().tables[0].inserts, inserts + 1);
  ExpectWholeItems(shard);
}

}  // namespace
}  // namespace replicant::replay
