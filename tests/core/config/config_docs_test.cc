// docs/config.md shows what the code really prints.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/base/fs.h"
#include "core/config/load.h"
#include "core/config/log_config.h"

namespace replicant::config {
namespace {

// The example of the page.
struct ReplayConfig {
  int shards = 1;
  int64_t capacity_items = 1'000'000;
  int64_t min_size_to_sample = 1000;

  static ReplayConfig Read(Reader& reader) {
    ReplayConfig c;
    reader.Field("shards", &c.shards, {1, 64}, "number of replay processes");
    reader.Field("capacity_items", &c.capacity_items, {1, 1'000'000'000},
                 "items that one shard holds");
    reader.Field("min_size_to_sample", &c.min_size_to_sample,
                 {1, 1'000'000'000},
                 "items a shard must hold before the first sample");
    if (c.min_size_to_sample > c.capacity_items) {
      reader.Error("min_size_to_sample",
                   "must be <= capacity_items, or no sample is ever drawn");
    }
    return c;
  }
};

struct RunConfig {
  ReplayConfig replay;
  LogOptions log;

  static RunConfig Read(Reader& reader) {
    RunConfig c;
    reader.Section("replay", &c.replay, "the replay service");
    c.log = ReadLogOptions(reader);
    return c;
  }
};

std::string ReadPage() {
  return ReadFile(REPLICANT_SOURCE_DIR "/docs/config.md");
}

// The text of the block that follows the line "<!-- name -->".
std::string Block(const std::string& page, const std::string& name) {
  const std::string mark = "<!-- " + name + " -->\n";
  size_t begin = page.find(mark);
  REPLICANT_CHECK(begin != std::string::npos, "no block {}", name);
  begin = page.find("```", begin);
  begin = page.find('\n', begin) + 1;
  return page.substr(begin, page.find("```", begin) - begin);
}

TEST(ConfigDocsTest, TheExampleFilesGiveTheErrorsOnThePage) {
  const std::string page = ReadPage();
  const std::string run = Block(page, "bad run.yaml");
  const std::string base = Block(page, "base.yaml");
  try {
    Load<RunConfig>(Document::FromFile("run.yaml", {"replay.shards=many"},
                                       [&](const std::filesystem::path& path) {
                                         return path == "run.yaml" ? run : base;
                                       }));
    FAIL() << "no ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_EQ(Block(page, "errors"), std::string(error.what()) + "\n");
  }
}

TEST(ConfigDocsTest, TheManualOfTheLogSectionIsCurrent) {
  const std::string markdown = Describe<RunConfig>().markdown();
  const size_t log = markdown.find("### `log`");
  ASSERT_NE(log, std::string::npos);
  EXPECT_NE(ReadPage().find(markdown.substr(log)), std::string::npos)
      << "docs/config.md should hold\n"
      << markdown.substr(log);
}

TEST(ConfigDocsTest, TheGoodExampleIsRead) {
  const std::string page = ReadPage();
  const std::string run = Block(page, "run.yaml");
  const std::string base = Block(page, "base.yaml");
  const RunConfig c =
      Load<RunConfig>(
          Document::FromFile("run.yaml", {"log.level=debug"},
                             [&](const std::filesystem::path& path) {
                               return path == "run.yaml" ? run : base;
                             }))
          .config;
  EXPECT_EQ(c.replay.shards, 2);
  EXPECT_EQ(c.replay.capacity_items, 200'000);
  EXPECT_EQ(c.log.level, LogLevel::kDebug);
}

}  // namespace
}  // namespace replicant::config
