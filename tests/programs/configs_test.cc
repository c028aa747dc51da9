// The configurations in configs/.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <any>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "agents/d4pg/config.h"
#include "base/config/load.h"
#include "base/fs.h"
#include "programs/run/run_config.h"

namespace replicant::programs {
namespace {

const std::filesystem::path kFolder =
    std::filesystem::path(REPLICANT_SOURCE_DIR) / "configs";

std::vector<std::filesystem::path> ReadyRuns() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  return files;
}

RunConfig Load(const std::filesystem::path& file) {
  return LoadRunConfig(config::Document::FromFile(file), Registry::BuiltIn())
      .config;
}

TEST(ConfigsTest, EveryRecipeIsCalledAfterItsFile) {
  for (const auto& file : ReadyRuns()) {
    if (file.filename() == "reference.yaml") continue;
    const RunConfig config = Load(file);
    EXPECT_EQ(config.run.name, file.stem()) << file;
    EXPECT_EQ(config.task.has_pixels,
              std::any_cast<const agents::d4pg::D4pgConfig&>(
                  config.workloads.at("d4pg"))
                  .networks.encoder.has_pixels())
        << file;
    // a run that nobody stops ends
    EXPECT_TRUE(config.learner.limits.max_seconds > 0.0 ||
                config.learner.limits.max_steps > 0 ||
                config.learner.limits.max_frames > 0)
        << file;
  }
}

// To bring it up to date: fleet --print_config_docs=yaml >
// configs/reference.yaml
TEST(ConfigsTest, TheReferenceIsCurrent) {
  EXPECT_TRUE(ReadFile(kFolder / "reference.yaml") ==
              DescribeRunConfig(Registry::BuiltIn()).reference_yaml());
}

TEST(ConfigsTest, TheReferenceHoldsTheDefaults) {
  const RunConfig config = Load(kFolder / "reference.yaml");
  EXPECT_EQ(config.learner.batch_size, RunConfig().learner.batch_size);
}

}  // namespace
}  // namespace replicant::programs
