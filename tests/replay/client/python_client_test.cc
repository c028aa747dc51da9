// A client that was written from docs/replay_protocol.md speaks with the
// service.
#include <gtest/gtest.h>

#include "core/base/fs.h"
#include "core/base/process.h"
#include "tests/replay/episodes.h"
#include "tests/replay/running_service.h"

namespace replicant::replay {
namespace {

TEST(PythonClientTest, InsertsSamplesUpdatesAndSaves) {
  ShardConfig config;
  config.shape = testing::EpisodeMaker().shape;
  config.tables = {{.name = "t",
                    .max_size = 100,
                    .priority_exponent = 1.0,
                    .n_step = {.n_step = 2, .discount = 0.5},
                    .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                                     .min_size_to_sample = 6}}};
  const TemporaryFolder folder;
  testing::RunningService service(config, replicant::testing::OwnAddress(),
                                  testing::RunningService::FastTicks(), {},
                                  {.folder = folder.path()});
  const CommandResult result = RunCommand(
      {.command = {REPLICANT_PYTHON,
                   REPLICANT_SOURCE_DIR "/tests/replay/client/python_client.py",
                   REPLICANT_SOURCE_DIR "/scripts", service.endpoint()}},
      std::chrono::seconds(60));
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.output, "ok\n");
  EXPECT_EQ(ReadCheckpointHead(folder.path(), 1).id, 17u);
}

}  // namespace
}  // namespace replicant::replay
