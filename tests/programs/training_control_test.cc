// A whole training that is looked at and ended from outside.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/programs/training_fixture.h"

namespace replicant {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class TrainingControlTest : public TrainingFixture {
 protected:
  // A fleet that trains until it is stopped.
  Process StartTraining() const {
    return Process({.command = Command({"learner.limits.max_steps=0",
                                        "evaluation.enabled=false"}),
                    .stdout_file = folder_.path() / "out",
                    .stderr_file = folder_.path() / "out"});
  }
  CommandResult Fleet(std::vector<std::string> words) const {
    words.insert(words.begin(), REPLICANT_FLEET);
    return RunCommand({.command = words}, std::chrono::minutes(3));
  }
};

TEST_F(TrainingControlTest, ShowsARunAndEndsIt) {
  Process fleet = StartTraining();
  ASSERT_TRUE(AwaitFile(run_ / "status.json", "\"updates\"")) << Output();
  const CommandResult status = Fleet({"--status", run_.string()});
  EXPECT_TRUE(status.status.ok()) << status.output;
  EXPECT_THAT(status.output,
              AllOf(HasSubstr("run      " + run_.string()),
                    ContainsRegex(fmt::format("fleet    .*/{}", fleet.pid())),
                    ContainsRegex("actor-0 .* frames "),
                    ContainsRegex("learner-0 .* updates "),
                    ContainsRegex("replay-0 .* items ")));

  const CommandResult logs = Fleet({"--logs", run_.string(), "replay"});
  EXPECT_TRUE(logs.status.ok()) << logs.output;
  EXPECT_THAT(logs.output, HasSubstr("listening at"));
  const CommandResult no_logs = Fleet({"--logs", run_.string(), "actr"});
  EXPECT_FALSE(no_logs.status.ok());
  EXPECT_THAT(no_logs.output,
              AllOf(HasSubstr("no log of 'actr'; roles with logs: actor-0, "),
                    HasSubstr("replay-0")));

  const CommandResult stop = Fleet({"--stop", run_.string()});
  EXPECT_TRUE(stop.status.ok()) << stop.output;
  EXPECT_THAT(stop.output, HasSubstr("it has ended"));
  EXPECT_TRUE(fleet.Wait().ok()) << Output();
  EXPECT_THAT(Fleet({"--status", run_.string()}).output,
              HasSubstr("status   stopped, "));
  const CommandResult again = Fleet({"--stop", run_.string()});
  EXPECT_FALSE(again.status.ok());
  EXPECT_THAT(again.output, HasSubstr("no fleet and no learner runs there"));
}

TEST_F(TrainingControlTest, ADeadFleetIsNotStopped) {
  Process fleet = StartTraining();
  ASSERT_TRUE(AwaitFile(run_ / "status.json", "\"updates\"")) << Output();
  fleet.Signal(SIGKILL);
  fleet.Wait();
  const CommandResult stop = Fleet({"--stop", run_.string()});
  EXPECT_FALSE(stop.status.ok());
  EXPECT_THAT(stop.output, HasSubstr("no fleet and no learner runs there"));
}

// The lock names the host of the fleet, whose processes are out of reach.
TEST_F(TrainingControlTest, ARunOfAnotherHostIsStoppedThere) {
  Process fleet = StartTraining();
  ASSERT_TRUE(AwaitFile(run_ / "status.json", "\"updates\"")) << Output();
  EXPECT_TRUE(Fleet({"--stop", run_.string()}).status.ok());
  AtomicWriteFile(run_ / "lock", "elsewhere/17");
  const CommandResult stop = Fleet({"--stop", run_.string()});
  EXPECT_FALSE(stop.status.ok());
  EXPECT_THAT(stop.output, HasSubstr("hint: run fleet --stop on elsewhere"));
}

TEST_F(TrainingControlTest, WordsThatDoNotBelongAreNamed) {
  EXPECT_THAT(Fleet({"--status"}).output,
              HasSubstr("--status: want the folder of a run"));
  EXPECT_THAT(Fleet({"--stop", run_.string(), "now"}).output,
              HasSubstr("'now' does not belong there; want --stop RUN"));
  EXPECT_THAT(Fleet({"--status", run_.string()}).output,
              HasSubstr("no such folder"));
}

}  // namespace
}  // namespace replicant
