// The real shard and the slow obvious one (shard_model.h) agree over random
// sequences of operations.
//
// REPLICANT_REPLAY_OPERATIONS=1000000 makes it long; scripts/checks/replay_soak
// does.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/fs.h"
#include "base/rng.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/table/shard.h"
#include "tests/replay/table/shard_model.h"

namespace replicant::replay {
namespace {

using testing::ModelChunk;
using testing::ModelItem;
using testing::ShardModel;

constexpr int kWriters = 3;

// The contents of an observation and an action, so that a sampled item shows
// its step.
struct Mark {
  uint64_t writer, episode;
  int64_t step;
  bool operator==(const Mark&) const = default;
};
constexpr StepShape kShape = {.observation_bytes = sizeof(Mark),
                              .action_bytes = sizeof(Mark)};

std::span<const std::byte> BytesOf(const Mark& mark) {
  return std::as_bytes(std::span(&mark, 1));
}
Mark MarkOf(std::span<const std::byte> bytes) {
  Mark mark;
  std::memcpy(&mark, bytes.data(), sizeof(mark));
  return mark;
}

// Memory for so many chunks: 60 never run out, 20 evict, 8 are held by open
// episodes now and then.
ShardConfig PropertyConfig(int64_t max_chunks = 60) {
  ShardConfig config;
  config.shape = kShape;
  config.max_bytes = max_chunks * (kChunkOverheadBytes + 200);
  config.limits = {.insert_chunk = 4, .samples_in_flight = 8};
  config.tables.resize(7);
  config.tables[0] = {.name = "prioritized",
                      .max_size = 30,
                      .priority_exponent = 0.7,
                      .n_step = {.n_step = 3, .discount = 0.9, .stack = 3},
                      .rate_limiter = {.samples_per_insert = 2.0,
                                       .min_size_to_sample = 5,
                                       .error_buffer = 40.0}};
  config.tables[1] = {.name = "lowest",
                      .max_size = 12,
                      .sampler = SelectorKind::kUniform,
                      .remover = SelectorKind::kLowestPriority,
                      .max_times_sampled = 4,
                      .n_step = {.n_step = 1, .discount = 0.5},
                      .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                                       .min_size_to_sample = 2}};
  config.tables[2] = {.name = "newest",
                      .max_size = 10,
                      .sampler = SelectorKind::kLifo,
                      .remover = SelectorKind::kLifo,
                      .n_step = {.n_step = 5, .discount = 1.0, .stack = 2},
                      .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                                       .min_size_to_sample = 1}};
  config.tables[3] = {.name = "queue",
                      .max_size = 25,
                      .sampler = SelectorKind::kFifo,
                      .max_times_sampled = 1,
                      .n_step = {.n_step = 2, .discount = 0.8},
                      .rate_limiter = {.mode = RateLimiterMode::kQueue}};
  config.tables[4] = {
      .name = "windows",
      .max_size = 6,
      .priority_exponent = 1.0,
      .n_step = {.discount = 0.9, .stack = 2, .window = 4, .period = 2},
      .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                       .min_size_to_sample = 3}};
  config.tables[5] = {.name = "adjacent windows",
                      .max_size = 3,
                      .sampler = SelectorKind::kUniform,
                      .max_times_sampled = 3,
                      .n_step = {.discount = 0.7, .window = 3, .period = 3},
                      .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                                       .min_size_to_sample = 1}};
  config.tables[6] = {.name = "fading",
                      .max_size = 12,
                      .priority_exponent = 0.5,
                      .priority_fade = {.base = 0.9, .floor = 0.4},
                      .remover = SelectorKind::kLowestPriority,
                      .max_times_sampled = 6,
                      .n_step = {.n_step = 1, .discount = 0.9},
                      .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                                       .min_size_to_sample = 1}};
  return config;
}

// A writer as the test plays it.
struct Player {
  uint64_t sequence = 0;
  uint64_t episode = 0;
  int64_t next_step = 0;
  bool is_waiting = false;
  // the chunk sent last, to send it again
  std::vector<std::byte> last_block;
  ModelChunk last_chunk;
};

class Property {
 public:
  // With a disk tier the model is one with memory for everything.
  Property(uint64_t seed, int64_t max_chunks, bool has_disk = false)
      : has_disk_(has_disk),
        random_(seed, "operations"),
        config_(WithDisk(PropertyConfig(max_chunks))),
        shard_(std::make_unique<Shard>(config_, &clock_)),
        checkpointer_(std::make_unique<Checkpointer>(Options(), shard_.get())),
        model_(PropertyConfig(has_disk ? 1 << 20 : max_chunks)),
        players_(kWriters),
        keys_(PropertyConfig().tables.size()) {}

  void Step() {
    const int64_t what = random_.UniformInt(100);
    if (what < 45) {
      Insert(RandomWriter());
    } else if (what < 50) {
      SendAgain(RandomWriter());
    } else if (what < 55) {
      Resume(RandomWriter());
    } else if (what < 85) {
      Sample();
    } else if (what < 99) {
      Update();
    } else if (random_.UniformInt(2) == 0) {
      CloseWriter(RandomWriter());
    } else {
      Restart();
    }
    Compare();
  }

  int64_t most_on_disk() const { return most_on_disk_; }
  bool has_evicted() const { return model_.counts.evicted_items > 0; }
  bool had_no_room() const { return had_no_room_; }

 private:
  uint64_t RandomWriter() {
    return static_cast<uint64_t>(random_.UniformInt(kWriters)) + 1;
  }
  Player& PlayerOf(uint64_t writer) {
    return players_[static_cast<size_t>(writer - 1)];
  }

  // A random chunk: mostly the next steps of the episode, sometimes a new one
  // or a gap.
  ModelChunk MakeChunk(uint64_t writer) {
    Player& player = PlayerOf(writer);
    const int64_t what = random_.UniformInt(30);
    if (what == 0) {
      ++player.episode;
      player.next_step = 0;
    } else if (what == 1) {
      player.next_step += 1 + random_.UniformInt(3);
    }
    ModelChunk chunk;
    chunk.writer = writer;
    chunk.episode = player.episode;
    chunk.first_step = player.next_step;
    chunk.ends = random_.UniformInt(5) == 0;
    const bool has_priorities = random_.UniformInt(3) == 0;
    const int64_t num_steps = random_.UniformInt(4) + (chunk.ends ? 0 : 1);
    const bool is_terminal = chunk.ends && random_.UniformInt(2) == 0;
    for (int64_t i = 0; i < num_steps; ++i) {
      chunk.rewards.push_back(static_cast<float>(random_.Normal()));
      chunk.discounts.push_back(is_terminal && i + 1 == num_steps ? 0.0f
                                                                  : 1.0f);
      if (has_priorities) {
        chunk.priorities.push_back(static_cast<float>(random_.UniformInt(4)) *
                                   0.5f);
      }
    }
    return chunk;
  }

  std::vector<std::byte> BlockOf(const ModelChunk& chunk) {
    ChunkBuilder builder(kShape, chunk.episode, chunk.first_step);
    Mark mark = {chunk.writer, chunk.episode, chunk.first_step};
    for (size_t i = 0; i < chunk.rewards.size(); ++i, ++mark.step) {
      std::optional<float> priority;
      if (!chunk.priorities.empty()) priority = chunk.priorities[i];
      builder.AddStep(BytesOf(mark), BytesOf(mark), chunk.rewards[i],
                      chunk.discounts[i], priority);
    }
    if (chunk.ends) builder.AddLastObservation(BytesOf(mark));
    return builder.Finish({});
  }

  void Insert(uint64_t writer) {
    Player& player = PlayerOf(writer);
    // a writer that is told to wait sends nothing new
    if (player.is_waiting) return Resume(writer);
    ModelChunk chunk = MakeChunk(writer);
    const std::vector<std::byte> block = BlockOf(chunk);
    chunk.bytes = static_cast<int64_t>(block.size()) + kChunkOverheadBytes;
    const InsertResult expected =
        model_.Insert(writer, player.sequence + 1, chunk);
    const InsertResult result =
        shard_->TryInsert(writer, player.sequence + 1, block);
    ASSERT_EQ(result, expected);
    if (result == InsertResult::kNoRoom) {
      had_no_room_ = true;
      return;
    }
    ++player.sequence;
    player.last_block = block;
    player.last_chunk = chunk;
    player.is_waiting = result == InsertResult::kWait;
    player.next_step = chunk.end_observation();
    if (chunk.ends || result == InsertResult::kDropped) {
      ++player.episode;
      player.next_step = 0;
    }
  }

  void SendAgain(uint64_t writer) {
    Player& player = PlayerOf(writer);
    if (player.sequence == 0) return;
    const InsertResult expected =
        model_.Insert(writer, player.sequence, player.last_chunk);
    ASSERT_EQ(shard_->TryInsert(writer, player.sequence, player.last_block),
              expected);
    player.is_waiting = expected == InsertResult::kWait;
  }

  void Resume(uint64_t writer) {
    const InsertResult expected = model_.Resume(writer);
    ASSERT_EQ(shard_->Resume(writer), expected);
    PlayerOf(writer).is_waiting = expected == InsertResult::kWait;
  }

  void CloseWriter(uint64_t writer) {
    model_.CloseWriter(writer);
    shard_->CloseWriter(writer);
    Player& player = PlayerOf(writer);
    player.is_waiting = false;
    ++player.episode;
    player.next_step = 0;
  }

  // As if the process had ended after a checkpoint: nothing may be different.
  void Restart() {
    checkpointer_->Save();
    checkpointer_.reset();
    shard_ = std::make_unique<Shard>(config_, &clock_);
    checkpointer_ = std::make_unique<Checkpointer>(Options(), shard_.get());
    ASSERT_EQ(checkpointer_->restored().number, checkpointer_->last_number());
    ASSERT_TRUE(checkpointer_->restored().problems.empty());
  }
  CheckpointOptions Options() const {
    // small, so that segments are closed, copied and deleted
    return {.folder = folder_.path(), .segment_bytes = 4000};
  }

  void Sample() {
    const int64_t table = random_.UniformInt(shard_->num_tables());
    const int64_t wanted = 1 + random_.UniformInt(8);
    SampledBatch batch;
    const bool goes =
        PropertyConfig().tables[static_cast<size_t>(table)].max_times_sampled >
        0;
    const int64_t admitted = model_.AdmitSamples(table, wanted);
    const int64_t drawn = shard_->TrySample(table, wanted, "reader", &batch);
    ASSERT_EQ(static_cast<size_t>(drawn), batch.items.size());
    if (!goes) {
      ASSERT_EQ(drawn, admitted);
    }
    for (const SampledItem& item : batch.items) {
      if (goes) {
        ASSERT_EQ(model_.AdmitSamples(table, 1), 1);
      }
      CheckItem(table, batch, item);
      if (::testing::Test::HasFatalFailure()) return;
    }
    if (goes && drawn < wanted) {
      ASSERT_EQ(model_.AdmitSamples(table, 1), 0);
    }
  }

  void CheckItem(int64_t table, const SampledBatch& batch,
                 const SampledItem& item) {
    const Chunk& chunk = batch.ChunkOf(item, item.step);
    const Mark mark =
        MarkOf(chunk.view.Observation(item.step - chunk.view.first_step()));
    ASSERT_EQ(mark.step, item.step);
    ASSERT_EQ(MarkOf(chunk.view.Action(item.step - chunk.view.first_step())),
              mark);
    ModelItem* expected =
        model_.Find(table, mark.writer, mark.episode, mark.step);
    ASSERT_NE(expected, nullptr) << "a removed or unknown item was drawn";
    ASSERT_TRUE(model_.CanDraw(*expected));
    ASSERT_NEAR(item.probability, model_.Probability(*expected), 1e-5);
    ASSERT_EQ(item.n, expected->n);
    ASSERT_NEAR(item.reward, expected->reward, 1e-5);
    ASSERT_NEAR(item.discount, expected->discount, 1e-6);
    ASSERT_EQ(item.priority, expected->priority);
    ASSERT_EQ(item.times_sampled, expected->times_sampled + 1);
    ASSERT_EQ(item.age, model_.Age(*expected));
    ASSERT_EQ(static_cast<size_t>(item.num_chunks), expected->chunks.size());
    // every observation from the stack's first to o_{t+k} is there
    const int64_t stack =
        PropertyConfig().tables[static_cast<size_t>(table)].n_step.stack;
    for (int64_t t = std::max<int64_t>(0, item.step - stack + 1);
         t <= item.step + item.n; ++t) {
      const Chunk& holder = batch.ChunkOf(item, t);
      ASSERT_EQ(MarkOf(holder.view.Observation(t - holder.view.first_step())),
                (Mark{mark.writer, mark.episode, t}));
    }
    keys_[static_cast<size_t>(table)].push_back({item.key, mark});
    model_.CountSample(*expected);
  }

  // New priorities for keys that were drawn at any time, most of them of items
  // that are gone.
  void Update() {
    const int64_t table = random_.UniformInt(shard_->num_tables());
    auto& keys = keys_[static_cast<size_t>(table)];
    if (keys.empty()) return;
    if (keys.size() > 200) keys.erase(keys.begin(), keys.begin() + 100);
    std::vector<PriorityUpdate> updates;
    int64_t live = 0;
    for (int64_t i = 1 + random_.UniformInt(4); i > 0; --i) {
      const auto& [key, mark] = keys[static_cast<size_t>(
          random_.UniformInt(static_cast<int64_t>(keys.size())))];
      const auto priority = static_cast<float>(random_.UniformInt(6)) * 0.5f;
      updates.push_back({key, priority});
      ModelItem* item =
          model_.Find(table, mark.writer, mark.episode, mark.step);
      if (item == nullptr) continue;
      ++live;
      model_.Update(*item, priority);
    }
    ASSERT_EQ(shard_->UpdatePriorities(table, updates), live);
  }

  void Compare() {
    const ShardStatus status = shard_->Status();
    for (int64_t i = 0; i < shard_->num_tables(); ++i) {
      const TableStatus& table = status.tables[static_cast<size_t>(i)];
      ASSERT_EQ(table.size, model_.size(i)) << table.name;
      ASSERT_EQ(table.inserts, model_.inserts(i)) << table.name;
      ASSERT_EQ(table.samples, model_.samples(i)) << table.name;
    }
    ASSERT_EQ(status.num_chunks, model_.num_chunks());
    most_on_disk_ = std::max(most_on_disk_, status.num_chunks_on_disk);
    if (has_disk_) {
      ASSERT_LE(status.size_bytes, config_.max_bytes);
      ASSERT_EQ(status.disk_bytes == 0, status.num_chunks_on_disk == 0);
    } else {
      ASSERT_EQ(status.size_bytes, model_.size_bytes());
    }
    ASSERT_EQ(status.num_writers, model_.num_writers());
    ASSERT_EQ(status.inserted_steps, model_.counts.inserted_steps);
    ASSERT_EQ(status.duplicate_groups, model_.counts.duplicate_groups);
    ASSERT_EQ(status.dropped_groups, model_.counts.dropped_groups);
    ASSERT_EQ(status.abandoned_steps, model_.counts.abandoned_steps);
    ASSERT_EQ(status.abandoned_items, model_.counts.abandoned_items);
    ASSERT_EQ(status.evicted_items, model_.counts.evicted_items);
  }

  ShardConfig WithDisk(ShardConfig config) const {
    if (has_disk_) {
      config.disk = {.folder = disk_folder_.path(), .max_bytes = 1 << 20};
      // of 40 chunks, the bytes of all but some ten go to the disk
      config.max_bytes = 40 * kChunkOverheadBytes + 10 * 200;
    }
    return config;
  }

  bool had_no_room_ = false;
  int64_t most_on_disk_ = 0;
  const bool has_disk_;
  const TemporaryFolder disk_folder_;
  RandomStream random_;
  FakeClock clock_;
  const ShardConfig config_;
  const TemporaryFolder folder_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<Checkpointer> checkpointer_;
  ShardModel model_;
  std::vector<Player> players_;
  std::vector<std::vector<std::pair<ItemKey, Mark>>> keys_;  // by table
};

int64_t NumOperations() {
  const char* text = std::getenv("REPLICANT_REPLAY_OPERATIONS");
  return text == nullptr ? 6000 : std::atoll(text);
}

// Catches wrong n-step sums, windows at the wrong steps, lost or doubled items,
// wrong order of removal, memory that stays or goes too early, late updates
// that hit the next item of a slot, a limiter that miscounts, and a restart
// that loses or changes anything.
TEST(ShardPropertyTest, AgreesWithTheObviousModel) {
  uint64_t seed = 0;
  for (const int64_t max_chunks : {60, 20, 8}) {
    Property property(++seed, max_chunks);
    for (int64_t i = 0; i < NumOperations() / 3; ++i) {
      property.Step();
      ASSERT_FALSE(HasFatalFailure())
          << "max_groups " << max_chunks << " operation " << i;
    }
    EXPECT_EQ(property.has_evicted(), max_chunks < 60);
    EXPECT_EQ(property.had_no_room(), max_chunks < 20);
  }
}

// Catches a chunk that is lost or changed on its way to the disk and back.
TEST(ShardPropertyTest, WithADiskTierItAgreesWithAModelOfEndlessMemory) {
  Property property(/*seed=*/9, /*max_chunks=*/40, /*has_disk=*/true);
  for (int64_t i = 0; i < NumOperations() / 3; ++i) {
    property.Step();
    ASSERT_FALSE(HasFatalFailure()) << "operation " << i;
  }
  EXPECT_FALSE(property.has_evicted());
  EXPECT_GT(property.most_on_disk(), 10);
}

}  // namespace
}  // namespace replicant::replay
