#include "fleet/log_follower.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "base/fs.h"
#include "tests/support/log_lines.h"

namespace replicant::fleet {
namespace {

using ::testing::ElementsAre;
using testing::LogLines;

class LogFollowerTest : public ::testing::Test {
 protected:
  void Append(const std::string& file, const std::string& text) const {
    std::ofstream(folder_.path() / file, std::ios::app) << text;
  }
  static std::string Line(char level, const std::string& message) {
    return std::string("2026-11-21 06:13:24.123 ") + level + " learner/4711 " +
           message + "\n";
  }
  // Follows one file from its beginning to its end.
  void FollowOnce(const std::string& file) const {
    LogFollower follower;
    follower.Follow("learner-0", folder_.path() / file);
  }

  const TemporaryFolder folder_;
  const LogLines log_;
};

TEST_F(LogFollowerTest, RepeatsWarningsAndErrorsAlone) {
  Append("a", Line('I', "step 1") + Line('W', "slow") +
                  "W something else\nterminate called\n" +
                  Line('E', "no checkpoint of step 5: No space left") +
                  "2026-11-21 06:13:24.123 W learner/4711 not yet whole");
  FollowOnce("a");
  EXPECT_THAT(log_.lines(),
              ElementsAre("learner-0: slow",
                          "learner-0: no checkpoint of step 5: No space left"));
}

// Would catch files that are never reached when there are many.
TEST_F(LogFollowerTest, ManyFilesAreReadInTurn) {
  constexpr int kFiles = LogFollower::kMaxFilesPerInterval + 2;
  LogFollower follower(std::chrono::milliseconds(1));
  for (int i = 0; i < kFiles; ++i) {
    const std::string name = std::to_string(i);
    follower.Follow("actor-" + name, folder_.path() / name);
  }
  // the first and the last by name
  Append("0", Line('W', "first"));
  Append("999", Line('W', "last"));
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (log_.lines().size() < 2 &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_THAT(log_.lines(), ::testing::UnorderedElementsAre("actor-0: first",
                                                            "actor-999: last"));
}

TEST_F(LogFollowerTest, ANewProcessOfTheRoleHasANewFile) {
  Append("a", Line('E', "the first"));
  Append("b", Line('E', "the second"));
  {
    LogFollower follower;
    follower.Follow("learner-0", folder_.path() / "a");
    follower.Follow("learner-0", folder_.path() / "a");
    follower.Follow("learner-0", folder_.path() / "b");
    follower.Follow("actor-0", folder_.path() / "missing");
  }
  EXPECT_THAT(log_.lines(),
              ElementsAre("learner-0: the first", "learner-0: the second"));
}

// Would catch a launcher that repeats the warnings of the one before it.
TEST_F(LogFollowerTest, ALogThatGoesOnIsFollowedFromItsEnd) {
  Append("a", Line('E', "of an earlier launcher"));
  {
    LogFollower follower;
    follower.FollowNew("host n1", folder_.path() / "a");
    follower.FollowNew("host n2", folder_.path() / "b");
    Append("a", Line('E', "of n1"));
    Append("b", Line('E', "of n2"));
  }
  EXPECT_THAT(log_.lines(), ::testing::UnorderedElementsAre("host n1: of n1",
                                                            "host n2: of n2"));
}

// Would catch a stalled disk that holds up the supervisor.
TEST_F(LogFollowerTest, AFileThatBlocksHoldsUpNoCaller) {
  const std::string stalled = folder_.path() / "stalled";
  ASSERT_EQ(::mkfifo(stalled.c_str(), 0600), 0);
  Append("b", Line('E', "the second"));
  {
    LogFollower follower(/*interval=*/std::chrono::milliseconds(1));
    follower.Follow("actor-0", stalled);
    // opens the pipe, which waits for a writer
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    auto caller = std::async(std::launch::async, [&] {
      follower.Follow("learner-0", folder_.path() / "b");
    });
    EXPECT_EQ(caller.wait_for(std::chrono::seconds(10)),
              std::future_status::ready);
    // a pipe that is no longer there does not block again
    const int writer = ::open(stalled.c_str(), O_WRONLY);
    ::unlink(stalled.c_str());
    ::close(writer);
  }
  EXPECT_THAT(log_.lines(), ElementsAre("learner-0: the second"));
}

// Would catch a role that floods the console.
TEST_F(LogFollowerTest, ManyLinesAreCounted) {
  for (int i = 0; i < 25; ++i) Append("a", Line('W', std::to_string(i)));
  FollowOnce("a");
  ASSERT_EQ(log_.lines().size(), 11U);
  EXPECT_EQ(log_.lines()[9], "learner-0: 9");
  EXPECT_EQ(log_.lines()[10], "learner-0: 15 more warnings in " +
                                  (folder_.path() / "a").string());
}

}  // namespace
}  // namespace replicant::fleet
