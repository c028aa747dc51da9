#include "replay/client/sharded_writer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <thread>

#include "base/error.h"
#include "tests/replay/episodes.h"
#include "tests/replay/running_service.h"
#include "tests/support/message_of.h"

namespace replicant::replay {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::After;
using testing::EpisodeMaker;
using testing::RunningService;

constexpr int64_t kSteps = 5;

class ShardedWriterTest : public ::testing::Test {
 protected:
  ShardConfig Config() const {
    ShardConfig config = testing::OpenTable(maker_, {.n_step = 1});
    config.tables[0].sampler = SelectorKind::kFifo;
    config.tables[0].max_times_sampled = 1;
    return config;
  }
  void StartServices(int count) {
    for (int i = 0; i < count; ++i) {
      services_.push_back(std::make_unique<RunningService>(Config()));
      endpoints_.push_back(services_.back()->endpoint());
    }
  }
  std::unique_ptr<ShardedWriter> MakeWriter(
      int64_t environment, int64_t num_environments,
      Clock::Duration patience = seconds(60)) const {
    return std::make_unique<ShardedWriter>(
        ShardedWriterOptions{.endpoints = endpoints_,
                             .writer = {.shape = maker_.shape},
                             .environment = environment,
                             .num_environments = num_environments,
                             .patience = patience});
  }
  // Writes one episode, whose number is in its observations.
  void WriteEpisode(ShardedWriter& writer, uint64_t episode) const {
    writer.BeginEpisode();
    for (int64_t t = 0; t < kSteps; ++t) {
      const auto observation = maker_.Observation(episode, t);
      const auto action = maker_.Action(episode, t);
      writer.Append({.observation = observation,
                     .frame = {},
                     .action = action,
                     .reward = 1.0F});
    }
    writer.EndEpisode(maker_.Observation(episode, kSteps), /*frame=*/{});
  }
  // How many steps of each episode the shard has.
  static std::map<uint64_t, int64_t> StepsOf(RunningService& service) {
    const int64_t size = service.shard().Status().tables[0].size;
    SampledBatch batch;
    EXPECT_EQ(service.shard().TrySample(0, size, "test", &batch), size);
    std::map<uint64_t, int64_t> steps;
    for (const SampledItem& item : batch.items) {
      const std::span<const std::byte> observation =
          batch.ChunkOf(item, 0).view.Observation(0);
      uint64_t episode = 0;
      std::memcpy(&episode, observation.data(), sizeof(episode));
      ++steps[episode];
    }
    return steps;
  }

  const EpisodeMaker maker_ = {};
  std::vector<std::unique_ptr<RunningService>> services_;
  std::vector<std::string> endpoints_;
};

// Three environments and two shards: the third takes turns. Would catch an
// episode that is spread over shards, and a shard with more episodes.
TEST_F(ShardedWriterTest, ShardsGetEquallyManyWholeEpisodes) {
  StartServices(2);
  for (int64_t e = 0; e < 3; ++e) {
    const auto writer = MakeWriter(e, 3);
    for (uint64_t i = 0; i < 4; ++i) {
      WriteEpisode(*writer, static_cast<uint64_t>(e) * 100 + i);
    }
    ASSERT_TRUE(writer->Flush(After(seconds(60))));
    EXPECT_EQ(writer->metrics().acknowledged_steps, 4 * kSteps);
  }
  const std::map<uint64_t, int64_t> first = {{0, 5}, {1, 5},   {2, 5},
                                             {3, 5}, {200, 5}, {202, 5}};
  const std::map<uint64_t, int64_t> second = {{100, 5}, {101, 5}, {102, 5},
                                              {103, 5}, {201, 5}, {203, 5}};
  EXPECT_EQ(StepsOf(*services_[0]), first);
  EXPECT_EQ(StepsOf(*services_[1]), second);
}

// Connections of an environment: none to a shard that it does not need.
TEST_F(ShardedWriterTest, AnEnvironmentConnectsToItsOwnShardAlone) {
  StartServices(2);
  const auto writer = MakeWriter(/*environment=*/1, /*num_environments=*/2);
  WriteEpisode(*writer, 1);
  ASSERT_TRUE(writer->Flush(After(seconds(60))));
  EXPECT_EQ(services_[0]->server().metrics().peers, 0);
  EXPECT_EQ(services_[1]->server().metrics().peers, 1);
}

// A shard goes away and comes back empty. Every step that was not acknowledged
// before is in one of the shards, once.
TEST_F(ShardedWriterTest, EpisodesPassOverAShardThatIsAway) {
  StartServices(2);
  const auto writer = MakeWriter(/*environment=*/0, /*num_environments=*/2,
                                 /*patience=*/Clock::Duration(0));
  WriteEpisode(*writer, 0);
  ASSERT_EQ(writer->shard(), 0);
  ASSERT_TRUE(writer->Flush(After(seconds(60))));
  services_[0].reset();
  // those that begin before the loss is seen wait for the shard
  uint64_t episode = 0;
  const auto give_up = After(seconds(60));
  const auto is_unseen = [&] {
    return writer->shard() == 0 && Clock::Real().Now() < give_up;
  };
  do {
    WriteEpisode(*writer, ++episode);
    // more of them would fill the queue
    while (is_unseen() && writer->metrics().is_connected) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  } while (is_unseen());
  ASSERT_EQ(writer->shard(), 1);
  services_[0] = std::make_unique<RunningService>(Config(), endpoints_[0]);
  ASSERT_TRUE(writer->Flush(After(seconds(60))));
  const auto old_shard = StepsOf(*services_[0]);
  const auto other = StepsOf(*services_[1]);
  for (uint64_t i = 1; i < episode; ++i) {
    EXPECT_EQ(old_shard.contains(i) ? old_shard.at(i) : 0, kSteps) << i;
  }
  EXPECT_EQ(other, (std::map<uint64_t, int64_t>{{episode, kSteps}}));
  // and once it answers again, episodes come back to it
  do {
    WriteEpisode(*writer, ++episode);
  } while (writer->shard() == 1 && Clock::Real().Now() < give_up);
  EXPECT_EQ(writer->shard(), 0);
}

TEST_F(ShardedWriterTest, NeedsAShard) {
  EXPECT_EQ(replicant::testing::MessageOf<InvalidArgument>(
                [] { const ShardedWriter writer({.endpoints = {}}); }),
            "ShardedWriter: no endpoints; give one for each shard");
}

}  // namespace
}  // namespace replicant::replay
