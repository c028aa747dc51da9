#include "fleet/run_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <string>
#include <thread>

#include "base/clock.h"
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
  EXPECT_FALSE(std::filesystem::exists(run));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "a.fetching"));
}

// Would catch a launcher that writes old files over a run that another one has
// fetched and goes on with.
TEST(FetchRunTest, TwoLaunchersFetchOnce) {
  const TemporaryFolder folder;
  const std::filesystem::path home = folder.path() / "home";
  const std::filesystem::path run = folder.path() / "a";
  const std::filesystem::path calls = folder.path() / "calls";
  const std::filesystem::path script = folder.path() / "fetch";
  static_cast<void>(RunFolder::Create({.name = "a", .dir = home}, "{}\n"));
  AtomicWriteFile(script,
                  "echo call >> \"$1/calls\"\n"
                  "until [ -e \"$1/go\" ]; do sleep 0.01; done\n"
                  "cp -r \"$1/home/.\" \"$2\"\n");
  const std::string command =
      "sh " + script.string() + " " + folder.path().string() + " {run}";
  const auto fetch = [&] { return FetchRun(command, run); };
  auto first = std::async(std::launch::async, fetch);
  const auto deadline = Clock::Real().Now() + std::chrono::seconds(60);
  while (!std::filesystem::exists(calls) && Clock::Real().Now() < deadline) {
    std::this_thread::yield();
  }
  std::promise<void> is_about_to;
  auto second = std::async(std::launch::async, [&] {
    is_about_to.set_value();
    return fetch();
  });
  is_about_to.get_future().wait();
  AtomicWriteFile(folder.path() / "go", "");
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(second.get());
  EXPECT_EQ(ReadFile(calls), "call\n");
}

}  // namespace
}  // namespace replicant::fleet
