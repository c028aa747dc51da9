#include "base/log.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <regex>
#include <string>

#include "base/error.h"
#include "base/fs.h"

namespace replicant {
namespace {

// Puts a quiet console logger back when a test ends.
class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override { InitLogging({}); }

  const TemporaryFolder folder_;
  const std::string file_ = (folder_.path() / "role.log").string();
};

TEST_F(LogTest, LineHoldsTimeLevelRoleProcessAndMessage) {
  InitLogging({.role = "actor-3", .file = file_, .console = false});
  spdlog::warn("replay is away");
  const std::regex line(R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} W actor-3/)" +
                        std::to_string(::getpid()) + " replay is away\n");
  EXPECT_TRUE(std::regex_match(ReadFile(file_), line)) << ReadFile(file_);
}

TEST_F(LogTest, LinesBelowTheLevelAreLeftOutAndTheFileIsAppendedTo) {
  for (int i = 0; i < 2; ++i) {
    InitLogging({.level = LogLevel::kWarning, .file = file_, .console = false});
    spdlog::info("not this one");
    spdlog::error("this one");
  }
  const std::string text = ReadFile(file_);
  EXPECT_EQ(text.find("not this one"), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST_F(LogTest, FileThatCannotBeOpenedIsAnErrorAndTheOldLoggerStays) {
  InitLogging({.role = "first", .file = file_, .console = false});
  EXPECT_THROW(InitLogging({.file = "/proc/no/such.log"}), IoError);
  spdlog::warn("still here");
  EXPECT_NE(ReadFile(file_).find("first/"), std::string::npos);
}

}  // namespace
}  // namespace replicant
