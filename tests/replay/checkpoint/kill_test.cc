// Kills a process in the middle of inserts and checkpoints, and looks at what a
// new one finds. REPLICANT_REPLAY_KILLS=100 makes it long.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <new>

#include "base/clock.h"
#include "base/fs.h"
#include "base/rng.h"
#include "base/thread.h"
#include "replay/checkpoint/checkpointer.h"

namespace replicant::replay {
namespace {

constexpr StepShape kShape = {.observation_bytes = 64, .action_bytes = 8};
constexpr uint64_t kWriter = 5;

ShardConfig Config() {
  ShardConfig config;
  config.shape = kShape;
  config.tables = {{.name = "t",
                    .max_size = 300,
                    .n_step = {.n_step = 3},
                    .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                                     .min_size_to_sample = 1}}};
  config.tables.push_back(config.tables[0]);
  config.tables[1].name = "windows";
  config.tables[1].n_step = {.window = 5, .period = 2};
  return config;
}

// Two steps of an episode of four chunks.
std::vector<std::byte> Block(uint64_t sequence) {
  const uint64_t episode = (sequence - 1) / 4;
  const auto first_step = static_cast<int64_t>((sequence - 1) % 4) * 2;
  ChunkBuilder builder(kShape, episode, first_step);
  const std::vector<std::byte> row(64, static_cast<std::byte>(sequence));
  for (int i = 0; i < 2; ++i) {
    builder.AddStep(row, std::span(row).first(8), 1.0f, 1.0f);
  }
  if (first_step == 6) builder.AddLastObservation(row);
  return builder.Finish({});
}

// Reports of the killed process, in memory shared with it.
struct Told {
  std::atomic<uint64_t> acknowledged{0};    // sequence
  std::atomic<uint64_t> saved_number{0};    // completed checkpoint
  std::atomic<uint64_t> saved_sequence{0};  // in that one at least
};

// Inserts and saves until it is killed.
[[noreturn]] void RunService(const std::filesystem::path& folder,
                             Durability durability, Told& told) {
  Shard shard(Config(), &Clock::Real());
  Checkpointer checkpointer(
      {.folder = folder, .durability = durability, .segment_bytes = 8000},
      &shard);
  Thread saver("saver", [&](const Thread::StopToken& stop) {
    while (!stop.IsStopRequested()) {
      const uint64_t sequence = told.acknowledged.load();
      const uint64_t number = checkpointer.Save();
      told.saved_sequence.store(sequence);
      told.saved_number.store(number);
    }
  });
  for (uint64_t sequence = shard.LastSequence(kWriter) + 1;; ++sequence) {
    if (shard.TryInsert(kWriter, sequence, Block(sequence)) !=
        InsertResult::kInserted) {
      std::_Exit(3);
    }
    told.acknowledged.store(sequence);
  }
}

// Everything that can be drawn is whole: each step lies in the chunk that its
// number says.
void ExpectWholeItems(Shard& shard, int64_t table) {
  if (shard.Status().tables[static_cast<size_t>(table)].size == 0) return;
  SampledBatch batch;
  ASSERT_EQ(shard.TrySample(table, 500, "test", &batch), 500);
  for (const SampledItem& item : batch.items) {
    for (int64_t t = item.step; t <= item.step + item.n; ++t) {
      const Chunk& chunk = batch.ChunkOf(item, t);
      const auto expected = static_cast<std::byte>(chunk.sequence);
      const auto row = chunk.view.Observation(t - chunk.view.first_step());
      for (const std::byte b : row) ASSERT_EQ(b, expected);
    }
  }
}

void KillAndRestart(Durability durability) {
  const char* text = std::getenv("REPLICANT_REPLAY_KILLS");
  const int num_kills = text == nullptr ? 5 : std::atoi(text);
  const TemporaryFolder folder;
  RandomStream random(durability == Durability::kJournal ? 1 : 2, "kills");
  void* const memory = ::mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  uint64_t at_start = 0;
  int64_t num_lost = 0;
  for (int i = 0; i < num_kills; ++i) {
    Told& told = *new (memory) Told;
    told.acknowledged.store(at_start);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) RunService(folder.path(), durability, told);
    // a random moment: so many inserts, and one checkpoint or not
    const uint64_t goal =
        at_start + 1 + static_cast<uint64_t>(random.UniformInt(400));
    const bool wants_save = random.UniformInt(4) > 0;
    int status = 0;
    const auto deadline = Clock::Real().Now() + std::chrono::seconds(60);
    while (told.acknowledged.load() < goal ||
           (wants_save && told.saved_number.load() == 0)) {
      ASSERT_EQ(::waitpid(child, &status, WNOHANG), 0) << "ended by itself";
      ASSERT_LT(Clock::Real().Now(), deadline);
      ::sched_yield();
    }
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, &status, 0), child);

    Shard shard(Config(), &Clock::Real());
    const Checkpointer checkpointer(
        {.folder = folder.path(), .durability = durability}, &shard);
    const uint64_t found = shard.LastSequence(kWriter);
    const RestoreReport& report = checkpointer.restored();
    // never older than what was reported complete, and no checkpoint is damaged
    ASSERT_GE(report.number.value_or(0), told.saved_number.load());
    ASSERT_GE(found, told.saved_sequence.load());
    if (durability == Durability::kJournal) {
      ASSERT_GE(found, told.acknowledged.load());
    } else {
      ASSERT_EQ(report.problems.size(), 0u) << report.problems[0];
    }
    // the steps that are lost can be told: two in each chunk
    ASSERT_EQ(shard.StepsOf(kWriter), static_cast<int64_t>(2 * found));
    for (int64_t table = 0; table < shard.num_tables(); ++table) {
      ExpectWholeItems(shard, table);
    }
    if (::testing::Test::HasFatalFailure()) return;
    num_lost += std::max<int64_t>(
        0, static_cast<int64_t>(told.acknowledged.load() - found));
    at_start = found;
  }
  ::munmap(memory, sizeof(Told));
  ::testing::Test::RecordProperty("lost_groups", static_cast<int>(num_lost));
}

TEST(ReplayKillTest, RestartsFromTheNewestCompleteCheckpoint) {
  KillAndRestart(Durability::kCheckpoint);
}

TEST(ReplayKillTest, WithAJournalLosesNothingThatWasAcknowledged) {
  KillAndRestart(Durability::kJournal);
}

}  // namespace
}  // namespace replicant::replay
