#include "replay/prior/mixed_source.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/disk_queue.h"
#include "base/error.h"
#include "base/fs.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/client/local_replay.h"
#include "tests/replay/episodes.h"

namespace replicant::replay {
namespace {

using testing::EpisodeMaker;

constexpr int64_t kStack = 2;
// episodes of the prior data and of the acted table
constexpr uint64_t kPrior = 500, kActed = 1;

EpisodeMaker Maker() {
  return {
      .shape = {.observation_bytes = 16, .action_bytes = 8, .frame_bytes = 48}};
}

TableConfig Table() {
  TableConfig table;
  table.n_step = {.n_step = 2, .discount = 0.5, .stack = kStack};
  table.priority_exponent = 1.0;
  table.rate_limiter = {.mode = RateLimiterMode::kMinSize,
                        .min_size_to_sample = 1};
  return table;
}

void Insert(Shard& shard, uint64_t episode, int64_t num_steps) {
  uint64_t sequence = 0;
  for (auto& chunk : Maker().Chunks(episode, num_steps)) {
    ASSERT_EQ(shard.TryInsert(episode, ++sequence, std::move(chunk)),
              InsertResult::kInserted);
  }
}

// What actors have written, drawn from without waiting.
class ActedSource : public BatchSource {
 public:
  explicit ActedSource(int64_t batch_size)
      : replay_({.shard = {.shape = Maker().shape, .tables = {Table()}},
                 .batch_size = batch_size,
                 .importance = {.exponent = 1.0}}) {
    Insert(replay_.shard(), kActed, 20);
  }

  ReadResult Next(Clock::TimePoint /*deadline*/, Batch* batch) override {
    if (is_paused || limit == 0) return ReadResult::kPaused;
    --limit;
    if (!replay_.Next(batch)) return ReadResult::kTimeout;
    batch->lost_steps = lost_steps;
    return ReadResult::kOk;
  }
  void UpdatePriorities(const Batch& batch,
                        std::span<const float> priorities) override {
    replay_.UpdatePriorities(batch, priorities);
  }
  void SetLostSteps(int64_t num_steps) override { lost_steps = num_steps; }
  void SetPaused(bool paused) override { is_paused = paused; }
  void SetLimit(int64_t num_batches) override { limit = num_batches; }
  void StartCheckpoint(uint64_t /*id*/,
                       const std::filesystem::path& /*folder*/) override {}
  CheckpointState PollCheckpoint() override { return CheckpointState::kSaved; }

  int64_t num_samples() { return replay_.shard().Status().tables[0].samples; }

  bool is_paused = false;
  int64_t limit = 1000;
  int64_t lost_steps = 0;

 private:
  LocalReplay replay_;
};

class MixedSourceTest : public ::testing::Test {
 protected:
  // Prior data of two episodes, of 12 and 6 steps, saved by a replay that
  // makes other items.
  void SetUp() override {
    TableConfig table = Table();
    table.n_step = {.n_step = 1, .discount = 0.9};
    Shard shard({.shape = Maker().shape, .tables = {table}}, &Clock::Real());
    Checkpointer checkpointer({.folder = folder()}, &shard);
    Insert(shard, kPrior, 12);
    Insert(shard, kPrior + 1, 6);
    checkpointer.Save();
  }

  std::filesystem::path folder() const { return folder_.path() / "prior"; }

  std::unique_ptr<MixedSource> Make(ActedSource* acted, int64_t batch_size,
                                    int64_t prior_rows,
                                    int64_t offline_batches = 0,
                                    DiskQueue* disk = nullptr) const {
    TableConfig table = Table();
    // of the acted items alone
    table.priority_fade.base = 0.5;
    return std::make_unique<MixedSource>(
        acted,
        std::make_unique<PriorReplay>(PriorOptions{.folder = folder(),
                                                   .shape = Maker().shape,
                                                   .table = table,
                                                   .seed = 3}),
        MixedSourceOptions{.batch_size = batch_size,
                           .prior_rows = prior_rows,
                           .offline_batches = offline_batches,
                           .importance = {.exponent = 1.0},
                           .disk = disk});
  }

  static ReadResult Next(MixedSource& source, Batch* batch) {
    return source.Next(Clock::Real().Now(), batch);
  }

  TemporaryFolder folder_;
};

struct Row {
  uint64_t episode = 0;
  int64_t step = 0;
};

Row RowOf(const HostBuffer& observations, int64_t row) {
  uint64_t values[2];
  std::memcpy(values, observations.bytes().data() + row * 16, sizeof(values));
  return {values[0], static_cast<int64_t>(values[1])};
}

TEST_F(MixedSourceTest, TheLastRowsArePriorDataAsItemsOfTheRun) {
  ActedSource acted(6);
  const auto source = Make(&acted, 16, 10);
  FrameRoom room;
  for (int draw = 0; draw < 5; ++draw) {
    Batch batch;
    ASSERT_EQ(Next(*source, &batch), ReadResult::kOk);
    ASSERT_EQ(batch.size, 16);
    for (int64_t row = 0; row < 16; ++row) {
      const auto i = static_cast<size_t>(row);
      const Row now = RowOf(batch.observations, row);
      const bool is_prior = row >= 6;
      EXPECT_EQ(now.episode >= kPrior, is_prior);
      EXPECT_EQ(batch.shards[i], is_prior ? Batch::kPriorShard : 0);
      const int64_t length = now.episode == kPrior       ? 12
                             : now.episode == kPrior + 1 ? 6
                                                         : 20;
      const int64_t n = std::min<int64_t>(2, length - now.step);
      EXPECT_EQ(batch.num_steps[i], n);
      EXPECT_EQ(RowOf(batch.next_observations, row).step, now.step + n);
      float reward = EpisodeMaker::Reward(now.step);
      if (n == 2) reward += 0.5F * EpisodeMaker::Reward(now.step + 1);
      EXPECT_EQ(batch.rewards[i], reward);
      EXPECT_EQ(batch.discounts[i], n == 2 ? 0.25F : 0.5F);
      EXPECT_EQ(testing::Joined(batch.FramesOf(row, room).frames, 48),
                Maker().Stack(now.episode, now.step, kStack));
    }
  }
}

TEST_F(MixedSourceTest, LostStepsAreThoseOfTheActedSource) {
  ActedSource acted(6);
  const auto source = Make(&acted, 16, 10);
  source->SetLostSteps(7);
  Batch batch;
  ASSERT_EQ(Next(*source, &batch), ReadResult::kOk);
  EXPECT_EQ(batch.lost_steps, 7);
}

// The tables' weights would differ by their sizes and priorities if they were
// one table.
TEST_F(MixedSourceTest, PrioritiesAndWeightsAreThoseOfEachTable) {
  ActedSource acted(64);
  const auto source = Make(&acted, 128, 64);
  Batch batch;
  ASSERT_EQ(Next(*source, &batch), ReadResult::kOk);
  std::vector<float> priorities;
  const auto priority_of = [](const Row& row) {
    return (row.episode >= kPrior ? 100.0F : 1.0F) *
           static_cast<float>(1 + row.step % 4);
  };
  // until every item has been drawn
  for (int draw = 0; draw < 20; ++draw) {
    priorities.clear();
    for (int64_t row = 0; row < 128; ++row) {
      priorities.push_back(priority_of(RowOf(batch.observations, row)));
    }
    source->UpdatePriorities(batch, priorities);
    ASSERT_EQ(Next(*source, &batch), ReadResult::kOk);
  }
  float least[2] = {1e9F, 1e9F};
  for (int64_t row = 0; row < 128; ++row) {
    const auto i = static_cast<size_t>(row);
    EXPECT_EQ(batch.priorities[i], priority_of(RowOf(batch.observations, row)));
    float& bound = least[row >= 64 ? 1 : 0];
    bound = std::min(bound, batch.priorities[i]);
  }
  for (int64_t row = 0; row < 128; ++row) {
    const auto i = static_cast<size_t>(row);
    EXPECT_FLOAT_EQ(batch.weights[i],
                    least[row >= 64 ? 1 : 0] / batch.priorities[i]);
  }
  EXPECT_EQ(acted.num_samples(), 21 * 64);
}

TEST_F(MixedSourceTest, TheFirstBatchesArePriorDataAloneAndLeaveTheActedOne) {
  ActedSource acted(4);
  const auto source = Make(&acted, 8, 4, /*offline_batches=*/3);
  Batch batch;
  for (int draw = 0; draw < 5; ++draw) {
    EXPECT_EQ(source->IsOffline(), draw < 3);
    EXPECT_EQ(acted.is_paused, draw <= 3);
    ASSERT_EQ(Next(*source, &batch), ReadResult::kOk);
    for (int64_t row = 0; row < 8; ++row) {
      EXPECT_EQ(RowOf(batch.observations, row).episode >= kPrior,
                draw < 3 || row >= 4);
    }
    source->UpdatePriorities(batch, std::vector<float>(8, 1.0F));
  }
  EXPECT_EQ(acted.num_samples(), 8);
  const auto forever = Make(&acted, 8, 8);
  ASSERT_EQ(Next(*forever, &batch), ReadResult::kOk);
  EXPECT_TRUE(forever->IsOffline());
  EXPECT_TRUE(acted.is_paused);
}

TEST_F(MixedSourceTest, APausedSourceAndALimitEndTheBatches) {
  ActedSource acted(4);
  const auto source = Make(&acted, 8, 4, /*offline_batches=*/2);
  Batch batch;
  source->SetPaused(true);
  EXPECT_EQ(Next(*source, &batch), ReadResult::kPaused);
  source->SetPaused(false);
  EXPECT_TRUE(acted.is_paused);
  source->SetLimit(3);
  for (int draw = 0; draw < 3; ++draw) {
    EXPECT_EQ(Next(*source, &batch), ReadResult::kOk);
  }
  EXPECT_EQ(Next(*source, &batch), ReadResult::kPaused);
  EXPECT_EQ(acted.limit, 0);  // of the one batch that it was asked for
  source->SetLimit(5);
  source->SetPaused(true);
  EXPECT_EQ(Next(*source, &batch), ReadResult::kPaused);
}

std::vector<std::byte> BytesOf(const Batch& batch) {
  const auto rows = batch.observations.bytes();
  return {rows.begin(), rows.end()};
}

TEST_F(MixedSourceTest, ARestoredSourceDrawsAsOneThatWasNotStopped) {
  ActedSource acted(4);
  const auto draw = [](MixedSource& source) {
    Batch batch;
    EXPECT_EQ(Next(source, &batch), ReadResult::kOk);
    std::vector<float> priorities;
    for (int64_t row = 0; row < batch.size; ++row) {
      priorities.push_back(static_cast<float>(
          1 + 3 * (RowOf(batch.observations, row).step % 5)));
    }
    source.UpdatePriorities(batch, priorities);
    return BytesOf(batch);
  };
  // prior data alone: an acted source restores itself
  const auto whole = Make(&acted, 8, 4, /*offline_batches=*/30);
  for (int i = 0; i < 10; ++i) draw(*whole);
  const auto state = folder_.path() / "step";
  MakeFolders(state);
  whole->StartCheckpoint(7, state);
  draw(*whole);  // changes nothing of the checkpoint
  ASSERT_EQ(whole->PollCheckpoint(), CheckpointState::kSaved);
  const auto resumed = Make(&acted, 8, 4, /*offline_batches=*/30);
  resumed->RestoreParts(state);
  draw(*resumed);
  for (int i = 11; i < 30; ++i) {
    EXPECT_EQ(draw(*resumed), draw(*whole)) << i;
  }
  EXPECT_FALSE(resumed->IsOffline());
  EXPECT_FALSE(whole->IsOffline());
}

TEST_F(MixedSourceTest, ACheckpointDoesNotWaitForTheDisk) {
  ActedSource acted(4);
  DiskQueue disk;
  const auto source = Make(&acted, 8, 4, /*offline_batches=*/0, &disk);
  std::promise<void> recovers;
  static_cast<void>(disk.Post([&] { recovers.get_future().wait(); }));
  const auto state = folder_.path() / "step";
  // behind the learner's part
  static_cast<void>(disk.Post([&] { MakeFolders(state); }));
  source->StartCheckpoint(7, state);
  EXPECT_EQ(source->PollCheckpoint(), CheckpointState::kPending);
  EXPECT_FALSE(std::filesystem::exists(state));
  recovers.set_value();
  ASSERT_TRUE(disk.Await(std::chrono::minutes(1)));
  EXPECT_EQ(source->PollCheckpoint(), CheckpointState::kSaved);
  EXPECT_NO_THROW(Make(&acted, 8, 4)->RestoreParts(state));
  const auto file = CheckpointPath(state, MixedSource::kStateNumber);
  EXPECT_EQ(MixedSource::FindDamage(state), "");
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  EXPECT_NE(MixedSource::FindDamage(state), "");
  std::filesystem::remove(file);
  EXPECT_EQ(MixedSource::FindDamage(state), "");  // a run without prior data

  source->StartCheckpoint(8,
                          folder_.path() / "none" / "of a failed checkpoint");
  ASSERT_TRUE(disk.Await(std::chrono::minutes(1)));
  EXPECT_THROW(static_cast<void>(source->PollCheckpoint()), IoError);
}

TEST_F(MixedSourceTest, OtherPriorDataThanBeforeIsRefused) {
  ActedSource acted(4);
  const auto source = Make(&acted, 8, 4);
  const auto state = folder_.path() / "step";
  MakeFolders(state);
  source->StartCheckpoint(7, state);
  ASSERT_EQ(source->PollCheckpoint(), CheckpointState::kSaved);
  {
    Shard shard({.shape = Maker().shape, .tables = {Table()}}, &Clock::Real());
    std::filesystem::remove_all(folder());
    Checkpointer checkpointer({.folder = folder()}, &shard);
    Insert(shard, kPrior, 12);
    checkpointer.Save();
  }
  const auto other = Make(&acted, 8, 4);
  try {
    other->RestoreParts(state);
    FAIL() << "no IoError";
  } catch (const IoError& error) {
    EXPECT_EQ(error.what(),
              folder().string() +
                  ": 3 groups of steps; the run's checkpoint has 5; hint: give "
                  "the run the prior data that it began with");
  }
}

TEST_F(MixedSourceTest, AFolderThatDoesNotFitIsNamed) {
  const auto message = [](const std::filesystem::path& folder,
                          const StepShape& shape) -> std::string {
    try {
      CheckPrior(folder, shape);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(folder(), Maker().shape), "");
  EXPECT_EQ(message(folder_.path() / "none", {}),
            (folder_.path() / "none").string() +
                ": no such folder; hint: replicant data import makes it");
  EXPECT_EQ(message(folder_.path(), {}),
            folder_.path().string() +
                ": no checkpoint of a replay; hint: replicant data import "
                "makes one");
  EXPECT_EQ(message(folder(), {.observation_bytes = 20, .action_bytes = 8}),
            folder().string() +
                ": its steps have 4 numbers beside the pixels, 2 of the "
                "action, 48 bytes of a frame; the run's have 5 numbers beside "
                "the pixels, 2 of the action, 0 bytes of a frame; hint: the "
                "mapping of replicant data import");
}

TEST_F(MixedSourceTest, ASummaryCountsWhatTheFolderHolds) {
  const PriorSummary summary = SummarizePrior(folder(), Maker().shape);
  EXPECT_EQ(summary.num_steps, 18);
  EXPECT_EQ(summary.num_episodes, 2);
  EXPECT_EQ(summary.num_terminated, 0);
  EXPECT_EQ(summary.least_reward, 0.0F);
  EXPECT_EQ(summary.largest_reward, 2.0F);
  EXPECT_DOUBLE_EQ(summary.mean_reward, 1.0);
  EXPECT_EQ(summary.num_left_out, 0);
}

// An observation that is not a number, and what follows in its episode.
TEST_F(MixedSourceTest, LeavesOutStepsThatAreNotFinite) {
  constexpr uint64_t kBad = kPrior + 2;
  const testing::EpisodeMaker maker = Maker();
  const auto bad_folder = folder_.path() / "bad";
  {
    Shard shard({.shape = maker.shape, .tables = {Table()}}, &Clock::Real());
    Checkpointer checkpointer({.folder = bad_folder}, &shard);
    Insert(shard, kPrior, 12);
    const std::vector<std::byte> nan(maker.shape.observation_bytes,
                                     std::byte{0xff});
    const auto action = maker.Action(kBad, 0);
    ChunkBuilder builder(maker.shape, kBad, 0);
    for (int64_t t = 0; t < maker.group_steps; ++t) {
      builder.AddStep(nan, action, 0.0F, 1.0F);
    }
    FrameBlockEncoder encoder(maker.codec, maker.shape.frame_bytes,
                              maker.group_steps);
    for (int64_t t = 0; t < maker.group_steps; ++t) {
      encoder.Add(maker.Frame(kBad, t));
    }
    ASSERT_EQ(shard.TryInsert(kBad, 1, builder.Finish(encoder.Finish())),
              InsertResult::kInserted);
    ASSERT_EQ(shard.TryInsert(kBad, 2, maker.Chunks(kBad, 12).at(1)),
              InsertResult::kInserted);
    checkpointer.Save();
  }
  const PriorSummary summary = SummarizePrior(bad_folder, maker.shape);
  EXPECT_EQ(summary.num_left_out, 1);
  EXPECT_EQ(summary.num_episodes, 1);
  ActedSource acted(6);
  MixedSource source(
      &acted,
      std::make_unique<PriorReplay>(PriorOptions{
          .folder = bad_folder, .shape = maker.shape, .table = Table()}),
      {.batch_size = 16, .prior_rows = 10});
  Batch batch;
  for (int draw = 0; draw < 20; ++draw) {
    ASSERT_EQ(Next(source, &batch), ReadResult::kOk);
    for (int64_t row = 6; row < 16; ++row) {
      ASSERT_EQ(RowOf(batch.observations, row).episode, kPrior);
    }
  }
}

}  // namespace
}  // namespace replicant::replay
