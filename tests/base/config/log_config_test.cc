#include "base/config/log_config.h"

#include <gtest/gtest.h>

#include <string>

#include "base/config/document.h"
#include "base/error.h"

namespace replicant::config {
namespace {

LogOptions Read(const std::string& text) {
  Reader reader(Document::FromText("run.yaml", text));
  LogOptions options = ReadLogOptions(reader);
  reader.Finish();
  return options;
}

TEST(LogConfigTest, AnEmptyFileGivesTheDefaultsOfLogOptions) {
  const LogOptions options = Read("");
  EXPECT_EQ(options.level, LogOptions().level);
  EXPECT_EQ(options.file, LogOptions().file);
  EXPECT_EQ(options.console, LogOptions().console);
}

// YAML 1.1 reads an unquoted off as false.
TEST(LogConfigTest, ReadsEveryKey) {
  const LogOptions options =
      Read("log: {level: off, file: a.log, console: false}");
  EXPECT_EQ(options.level, LogLevel::kOff);
  EXPECT_EQ(options.file, "a.log");
  EXPECT_FALSE(options.console);
}

TEST(LogConfigTest, NamesTheLevels) {
  try {
    Read("log: {level: warn}");
    FAIL() << "no ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "run.yaml:1:14: log.level: 'warn' is not one of trace, debug, "
                 "info, warning, error, off (least severe level that is "
                 "written); did you mean 'warning'?");
  }
}

}  // namespace
}  // namespace replicant::config
