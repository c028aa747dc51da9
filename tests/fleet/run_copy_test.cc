#include "fleet/run_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/fs.h"
#include "fleet/run_folder.h"
#include "tests/support/message_of.h"

namespace replicant::fleet {
namespace {

using replicant::testing::MessageOf;
using ::testing::HasSubstr;

// Would catch a folder that lacks the newest checkpoints and is taken for the
// whole run, since its state came first.
TEST(FetchRunTest, AFetchThatWasCutShortIsMadeAgain) {
  const TemporaryFolder folder;
  const std::filesystem::path home = folder.path() / "home";
  const std::filesystem::path run = folder.path() / "runs" / "a";
  const std::filesystem::path calls = folder.path() / "calls";
  const std::filesystem::path script = folder.path() / "fetch";
  static_cast<void>(RunFolder::Create({.name = "a", .dir = home}, "{}\n"));
  AtomicWriteFile(script,
                  "echo call >> \"$1/calls\"; mkdir -p \"$2\"\n"
                  "cp \"$1/home/state.yaml\" \"$2\"\n"
                  "[ ! -e \"$1/broken\" ] && cp -r \"$1/home/.\" \"$2\"\n");
  AtomicWriteFile(folder.path() / "broken", "");
  const std::string command =
      "sh " + script.string() + " " + folder.path().string() + " {run}";
  EXPECT_THAT(MessageOf<IoError>([&] { FetchRun(command, run / ""); }),
              HasSubstr("fleet.fetch_command: exit code 1"));
  EXPECT_TRUE(RunFolder::StatusOf(run).has_value());

  std::filesystem::remove(folder.path() / "broken");
  EXPECT_TRUE(FetchRun(command, run));
  EXPECT_EQ(ReadFile(calls), "call\ncall\n");
  EXPECT_TRUE(std::filesystem::exists(run / "config.yaml"));
  // now it is there
  EXPECT_TRUE(FetchRun(command, run));
  EXPECT_EQ(ReadFile(calls), "call\ncall\n");
}

TEST(FetchRunTest, AnEmptyBucketHasNoRun) {
  const TemporaryFolder folder;
  const std::filesystem::path run = folder.path() / "a";
  EXPECT_FALSE(FetchRun("true {run}", run));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace replicant::fleet
