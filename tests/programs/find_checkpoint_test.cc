#include "programs/run/find_checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "engine/runtime/checkpoint.h"
#include "learner/checkpoint_folder.h"
#include "tests/support/message_of.h"

namespace replicant::programs {
namespace {

using testing::MessageOf;

TEST(FindCheckpointTest, TakesTheNewestOrTheBestOfARun) {
  const TemporaryFolder folder;
  const std::filesystem::path run = std::filesystem::canonical(folder.path());
  AtomicWriteFile(run / "config.yaml", "run: {name: x}\n");
  const auto problem = [&](const std::string& given, const std::string& which) {
    return MessageOf([&] { FindCheckpoint("--checkpoint", given, which); });
  };
  const std::string start = "--checkpoint " + run.string();
  EXPECT_EQ(problem(run, "newest"), start + ": the run has no checkpoint yet");
  EXPECT_EQ(problem(run, "best"),
            start + ": the run has no evaluated policy in best yet");
  EXPECT_EQ(problem(run, "first"), "--which: got 'first', want newest or best");

  const std::filesystem::path best = run / "best/step-000000000004";
  runtime::SaveCheckpoint(best, {}, {.step = 4, .metadata = {{"return", "7"}}});
  EXPECT_EQ(FindCheckpoint("--checkpoint", run, "best"), best);
  EXPECT_EQ(FindCheckpoint("--checkpoint", best), best);
  EXPECT_EQ(problem(run, "newest"),
            start +
                ": the run has no checkpoint yet; hint: the best policy is " +
                best.string());
  EXPECT_EQ(problem(run / "best", "newest"),
            start + "/best: no checkpoint; hint: " + run.string() +
                ", or a folder step-... in its checkpoints or best");

  learner::CheckpointFolder checkpoints(run / "checkpoints", 1);
  checkpoints.Save({}, {.step = 8, .metadata = {}});
  checkpoints.Complete({.step = 8, .id = 1});
  EXPECT_EQ(FindCheckpoint("--checkpoint", run),
            run / "checkpoints/step-000000000008");
}

}  // namespace
}  // namespace replicant::programs
