// Prior data beside the batches of a service, as the learner of a fleet has it.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "base/fs.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/client/batch_reader.h"
#include "replay/prior/mixed_source.h"
#include "tests/replay/running_service.h"

namespace replicant::replay {
namespace {

using std::chrono::seconds;
using testing::After;
using testing::EpisodeMaker;
using testing::MakePixels;
using testing::OpenTable;
using testing::RunningService;

constexpr uint64_t kPrior = 500, kActed = 1;
constexpr NStepConfig kItems = {.n_step = 2, .stack = 3};

void Insert(Shard& shard, const EpisodeMaker& maker, uint64_t episode,
            int64_t num_steps) {
  uint64_t sequence = 0;
  for (auto& chunk : maker.Chunks(episode, num_steps)) {
    ASSERT_EQ(shard.TryInsert(episode, ++sequence, std::move(chunk)),
              InsertResult::kInserted);
  }
}

// Whether the reader decodes frames or leaves them to their user.
class MixedReaderTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(MixedReaderTest, MixesTheBatchesOfAServiceOnceTheOfflineOnesAreOver) {
  const EpisodeMaker maker = MakePixels();
  const TemporaryFolder folder;
  {
    Shard shard(OpenTable(maker, kItems), &Clock::Real());
    Checkpointer checkpointer({.folder = folder.path() / "prior"}, &shard);
    Insert(shard, maker, kPrior, 30);
    checkpointer.Save();
  }
  RunningService service(OpenTable(maker, kItems));
  Insert(service.shard(), maker, kActed, 40);
  BatchReader reader({.endpoints = {service.endpoint()},
                      .shape = maker.shape,
                      .batch_size = 10,
                      .decode_threads = GetParam(),
                      .importance = {.exponent = 1.0}});
  MixedSource source(
      &reader,
      std::make_unique<PriorReplay>(
          PriorOptions{.folder = folder.path() / "prior",
                       .shape = maker.shape,
                       .table = {.priority_exponent = 1.0, .n_step = kItems}}),
      {.batch_size = 16,
       .prior_rows = 6,
       .offline_batches = 2,
       .importance = {.exponent = 1.0}});
  source.SetLimit(20);
  EXPECT_FALSE(source.CanReadAhead());
  FrameRoom room;
  Batch batch;
  for (int draw = 0; draw < 20; ++draw) {
    ASSERT_EQ(source.Next(After(seconds(60)), &batch), ReadResult::kOk);
    std::vector<float> priorities;
    for (int64_t row = 0; row < 16; ++row) {
      uint64_t now[2];
      std::memcpy(now, batch.observations.bytes().data() + row * 16,
                  sizeof(now));
      EXPECT_EQ(now[0], draw < 2 || row >= 10 ? kPrior : kActed);
      const auto step = static_cast<int64_t>(now[1]);
      EXPECT_EQ(testing::Joined(batch.FramesOf(row, room).frames, 300),
                maker.Stack(now[0], step, kItems.stack));
      priorities.push_back(now[0] == kPrior ? 2.0F : 3.0F);
    }
    EXPECT_EQ(batch.total_steps, draw < 2 ? 0 : 40);
    source.UpdatePriorities(batch, priorities);
  }
  EXPECT_TRUE(source.CanReadAhead());
  EXPECT_EQ(source.Next(After(seconds(60)), &batch), ReadResult::kPaused);
  // the service gave the acted rows of the mixed batches, and no more
  EXPECT_EQ(service.shard().Status().tables[0].samples, 18 * 10);
  // all priorities have arrived: of its own items alone
  const auto deadline = After(seconds(60));
  while (service.shard().Status().tables[0].updates < 18 * 10 &&
         Clock::Real().Now() < deadline) {
    ASSERT_EQ(source.Next(After(std::chrono::milliseconds(1)), &batch),
              ReadResult::kPaused);
  }
  EXPECT_EQ(service.shard().Status().tables[0].updates, 18 * 10);
}

INSTANTIATE_TEST_SUITE_P(DecodeThreads, MixedReaderTest,
                         ::testing::Values(0, 2));

}  // namespace
}  // namespace replicant::replay
