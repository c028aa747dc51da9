#include "replay/service/replay_config.h"

#include <gtest/gtest.h>

#include "base/config/load.h"
#include "base/error.h"
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
      priority_fade: {base: 0.9999, floor: 0.2}
      rate_limiter: {samples_per_insert: 4, error_buffer: 1e4}
)")
                                 .replay.MakeShardConfig();
  EXPECT_EQ(config.shape.frame_bytes, 21168);
  EXPECT_EQ(config.max_bytes, 1'000'000'000);
  ASSERT_EQ(config.tables.size(), 2u);
  EXPECT_EQ(config.tables[0].name, "fresh");
  EXPECT_EQ(config.tables[0].sampler, SelectorKind::kFifo);
  EXPECT_EQ(config.tables[0].rate_limiter.mode, RateLimiterMode::kQueue);
  EXPECT_FALSE(config.tables[0].priority_fade.is_on());
  EXPECT_EQ(config.tables[1].n_step.n_step, 3);
  EXPECT_EQ(config.tables[1].priority_fade.base, 0.9999);
  EXPECT_EQ(config.tables[1].priority_fade.floor, 0.2);
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

TEST(ReplayConfigTest, RefusesAFadeThatCannotWork) {
  const auto message = [](const std::string& table) {
    return replicant::testing::MessageOf<ConfigError>(
        [&] { ReadText("replay:\n  tables: {t: {" + table + "}}\n"); });
  };
  EXPECT_EQ(message("sampler: uniform, priority_fade: {base: 0.9999}"),
            "run.yaml:2:11: replay.tables: t: priority_fade: base 0.9999 fades "
            "priorities, which sampler uniform does not use; allowed: base 1, "
            "or sampler prioritized");
  EXPECT_EQ(message("priority_fade: {base: 0.99999999}"),
            "run.yaml:2:11: replay.tables: t: priority_fade: base 0.99999999 "
            "reaches floor 0.1 after 230258507 items; allowed: at most "
            "16777216");
  EXPECT_EQ(message("priority_fade: {floor: 0}"),
            "run.yaml:2:39: replay.tables.t.priority_fade.floor: 0 is outside "
            "[1e-06, 1] (least factor of an item's weight, however old it is)");
}

// Would catch a total that every shard gets in full.
TEST(ReplayConfigTest, AShardHasItsPartOfTheTotals) {
  const ReplayConfig config = ReadText(R"(
replay:
  shards: 3
  bind: tcp://127.0.0.1:7001
  metrics_address: 127.0.0.1:9000
  max_bytes: 9e6
  disk_folder: /d
  disk_max_bytes: 6e6
  checkpoint_folder: /c
  samples_in_flight: 400
  seed: 5
  tables:
    t: {max_size: 100, priority_fade: {base: 0.5},
        rate_limiter: {min_size_to_sample: 10, error_buffer: 900}}
)")
                                  .replay;
  EXPECT_EQ(
      config.Endpoints(),
      (std::vector<std::string>{"tcp://127.0.0.1:7001", "tcp://127.0.0.1:7002",
                                "tcp://127.0.0.1:7003"}));
  const ReplayConfig part = config.OfShard(2);
  EXPECT_EQ(part.shards, 1);
  EXPECT_EQ(part.bind, "tcp://127.0.0.1:7003");
  EXPECT_EQ(part.metrics_address, "127.0.0.1:9002");
  ReplayConfig anywhere = config;
  anywhere.metrics_address = "127.0.0.1:0";
  EXPECT_EQ(anywhere.OfShard(2).metrics_address, "127.0.0.1:0");
  EXPECT_EQ(part.checkpoint_folder, "/c/shard-2-of-3");
  EXPECT_EQ(part.seed, 7);
  const ShardConfig shard = part.MakeShardConfig();
  EXPECT_EQ(shard.max_bytes, 3'000'000);
  EXPECT_EQ(shard.disk.folder, "/d/shard-2-of-3");
  EXPECT_EQ(shard.disk.max_bytes, 2'000'000);
  EXPECT_EQ(shard.limits.samples_in_flight, 134);
  ASSERT_EQ(shard.tables.size(), 1u);
  EXPECT_EQ(shard.tables[0].max_size, 34);
  EXPECT_EQ(shard.tables[0].priority_fade.base, 0.125);
  EXPECT_EQ(shard.tables[0].priority_fade.floor, 0.1);
  EXPECT_EQ(shard.tables[0].rate_limiter.min_size_to_sample, 4);
  EXPECT_EQ(shard.tables[0].rate_limiter.error_buffer, 300.0);
  EXPECT_EQ(shard.tables[0].rate_limiter.samples_per_insert, 8.0);
}

TEST(ReplayConfigTest, ShardsHaveAddressesOfTheirOwn) {
  const auto endpoints = [](const std::string& bind) {
    ReplayConfig config;
    config.shards = 2;
    config.bind = bind;
    return config.Endpoints();
  };
  using Strings = std::vector<std::string>;
  EXPECT_EQ(endpoints("auto"), (Strings{"auto", "auto"}));
  EXPECT_EQ(endpoints("tcp://h:*"), (Strings{"tcp://h:*", "tcp://h:*"}));
  EXPECT_EQ(endpoints("tcp://r-{shard}.r:7101"),
            (Strings{"tcp://r-0.r:7101", "tcp://r-1.r:7101"}));
  EXPECT_EQ(endpoints("ipc:///tmp/r"),
            (Strings{"ipc:///tmp/r", "ipc:///tmp/r-1"}));
}

TEST(ReplayConfigTest, RefusesShardsThatCannotWork) {
  const auto message = [](const std::string& text) {
    return replicant::testing::MessageOf<ConfigError>([&] { ReadText(text); });
  };
  EXPECT_EQ(message("replay:\n  shards: 2\n  tables: {t: {sampler: fifo}}\n"),
            "run.yaml:2:11: replay.shards: 2: table t is a queue or samples "
            "its items in order, and 2 services have no common order; allowed: "
            "1, or sampler prioritized or uniform");
  EXPECT_EQ(
      message("replay:\n  shards: 4\n"
              "  tables: {t: {rate_limiter: {error_buffer: 20}}}\n"),
      "run.yaml:2:11: replay.shards: 4: table t, of which each shard has 1/4: "
      "error_buffer 5 is below samples_per_insert times the 1 items of one "
      "message = 8: a message could wait for samples that wait for its items; "
      "hint: raise error_buffer to 8");
  EXPECT_EQ(message("replay: {shards: 2, max_bytes: 2000000}\n"),
            "run.yaml:1:18: replay.shards: 2: max_bytes 2000000 gives each "
            "shard less than 1048576");
  EXPECT_EQ(message("replay: {shards: 2, tables: {t: {max_size: 40e6}}}\n"),
            "run.yaml:1:18: replay.shards: 2: table t has 20000000 items in "
            "each shard, which holds at most 16777216; want more shards, or a "
            "smaller max_size");
  ReadText("replay: {shards: 3, tables: {t: {max_size: 40e6}}}\n");
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
