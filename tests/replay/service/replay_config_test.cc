#include "replay/service/replay_config.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/config/load.h"
#include "tests/support/message_of.h"

namespace replicant::replay {
namespace {

// A file with the section `replay`.
struct ReplayFile {
  ReplayConfig replay;

  static ReplayFile Read(config::Reader& reader) {
    ReplayFile file;
    reader.Section("replay", &file.replay, "the replay service");
    return file;
  }
};

ReplayFile ReadText(std::string_view text) {
  return config::Load<ReplayFile>(config::Document::FromText("run.yaml", text))
      .config;
}

TEST(ReplayConfigTest, DefaultsMakeAShardOfOneTable) {
  const ShardConfig config = ReadText("{}").replay.MakeShardConfig();
  ASSERT_EQ(config.tables.size(), 1u);
  EXPECT_EQ(config.tables[0].name, "default");
  const Shard shard(config, &Clock::Real());
}

TEST(ReplayConfigTest, ReadsTablesByName) {
  const ShardConfig config = ReadText(R"(
replay:
  frame_bytes: 21168
  max_bytes: 1e9
  tables:
    fresh: {max_size: 100, sampler: fifo, max_times_sampled: 1,
            rate_limiter: {mode: queue}}
    main:
      n_step: 3
      stack: 3
      rate_limiter: {samples_per_insert: 4, error_buffer: 1e4}
)")
                                 .replay.MakeShardConfig();
  EXPECT_EQ(config.shape.frame_bytes, 21168);
  EXPECT_EQ(config.max_bytes, 1'000'000'000);
  ASSERT_EQ(config.tables.size(), 2u);
  EXPECT_EQ(config.tables[0].name, "fresh");
  EXPECT_EQ(config.tables[0].sampler, SelectorKind::kFifo);
  EXPECT_EQ(config.tables[0].rate_limiter.mode, RateLimiterMode::kQueue);
  EXPECT_EQ(config.tables[1].n_step.n_step, 3);
  EXPECT_EQ(config.tables[1].rate_limiter.samples_per_insert, 4.0);
}

// The limiter's own reason stands in the message, with the place.
TEST(ReplayConfigTest, RefusesALimiterThatCouldDeadlock) {
  EXPECT_EQ(replicant::testing::MessageOf<ConfigError>([] {
              ReadText(
                  "replay:\n"
                  "  samples_in_flight: 512\n"
                  "  tables: {t: {rate_limiter: {error_buffer: 100}}}\n");
            }),
            "run.yaml:3:11: replay.tables: t: error_buffer 100 is below the "
            "512 samples that readers request at once: no reader might get a "
            "full batch; hint: raise error_buffer to 512");
}

TEST(ReplayConfigTest, RefusesHalfOfAPair) {
  EXPECT_EQ(
      replicant::testing::MessageOf<ConfigError>(
          [] { ReadText("replay:\n  key_file: a\n  durability: journal\n"); }),
      "run.yaml:2:13: replay.key_file: and allowed_clients_file must be given "
      "together\n"
      "run.yaml:3:15: replay.durability: journal needs a checkpoint_folder");
}

}  // namespace
}  // namespace replicant::replay
