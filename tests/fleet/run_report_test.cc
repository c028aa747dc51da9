#include "fleet/run_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/fs.h"
#include "fleet/run_folder.h"
#include "tests/support/message_of.h"

namespace replicant::fleet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::MessageOf;
using ::testing::Not;

class RunReportTest : public ::testing::Test {
 protected:
  RunReport WrittenAndRead(const RunReport& report) {
    AtomicWriteFile(RunFolder::ReportFile(folder_.path()), report.ToJson());
    return RunReport::Read(folder_.path());
  }

  TemporaryFolder folder_;
  RunReport report_{
      .status = "running",
      .fleet = "host12/4711",
      .time = 1000.0,
      .limit = "none",
      .problem = "",
      .roles = {{.name = "actor-0",
                 .state = "waiting",
                 .reason = "replay: no room yet",
                 .process = 17,
                 .num_failures = 2,
                 .last_failure = "exit code 3",
                 .numbers = {{"frames", 12345.0}, {"disk_wait_s", 0.0}},
                 .rates = {{"frames", 412.5}}}}};
};

TEST_F(RunReportTest, ComesBackFromItsFile) {
  report_.roles[0].reason = "bytes that are no text: \xff";
  const RunReport read = WrittenAndRead(report_);
  EXPECT_EQ(read.status, "running");
  EXPECT_EQ(read.fleet, "host12/4711");
  EXPECT_EQ(read.time, 1000.0);
  ASSERT_EQ(read.roles.size(), 1U);
  EXPECT_EQ(read.roles[0].name, "actor-0");
  EXPECT_THAT(read.roles[0].reason, HasSubstr("bytes that are no text: "));
  EXPECT_EQ(read.roles[0].process, 17U);
  EXPECT_EQ(read.roles[0].num_failures, 2);
  EXPECT_EQ(read.roles[0].numbers, report_.roles[0].numbers);
  EXPECT_EQ(read.roles[0].rates, report_.roles[0].rates);
}

TEST_F(RunReportTest, ShowsRolesRatesAndReasons) {
  EXPECT_EQ(report_.Table(/*now=*/1003.0),
            "status   running, 3s ago\n"
            "fleet    host12/4711\n"
            "limit    none\n"
            "\n"
            "role     state     process  failures  numbers\n"
            "actor-0  waiting        17         2  frames 12.3k (412.5/s)\n"
            "\n"
            "actor-0 waits for: replay: no room yet\n"
            "actor-0 failed: exit code 3\n");
}

TEST_F(RunReportTest, ShowsTheHostOfARoleWhereThereAreSeveral) {
  report_.roles[0].host = "node12";
  report_.roles.push_back(
      {.name = "learner-0", .state = "running", .process = 9});
  EXPECT_THAT(
      report_.Table(/*now=*/1003.0),
      HasSubstr("role       state     process  failures  host    numbers\n"
                "actor-0    waiting        17         2  node12  "
                "frames 12.3k (412.5/s)\n"
                "learner-0  running         9         0          \n"));
}

TEST_F(RunReportTest, SaysThatAFleetIsSilent) {
  EXPECT_THAT(
      report_.Table(/*now=*/1042.0),
      HasSubstr(
          "running, 42s ago: the fleet has died, or its disk has stalled"));
  report_.status = "complete";
  EXPECT_THAT(report_.Table(/*now=*/1042.0),
              AllOf(HasSubstr("complete, 42s ago"), Not(HasSubstr("died")),
                    Not(HasSubstr("limit"))));
}

TEST_F(RunReportTest, NamesAFileThatIsMissingOrBroken) {
  const std::string no_report =
      folder_.path().string() +
      ": no report (status.json) was written; the run's status: ";
  EXPECT_EQ(MessageOf<IoError>([&] { RunReport::Read(folder_.path()); }),
            no_report + "no run");
  AtomicWriteFile(folder_.path() / "state.yaml", "status: failed\n");
  EXPECT_EQ(MessageOf<IoError>([&] { RunReport::Read(folder_.path()); }),
            no_report + "failed");
  AtomicWriteFile(RunFolder::ReportFile(folder_.path()), "{\"status\": 3");
  EXPECT_THAT(MessageOf([&] { RunReport::Read(folder_.path()); }),
              HasSubstr("status.json: "));
  AtomicWriteFile(RunFolder::ReportFile(folder_.path()), "{}");
  EXPECT_THAT(MessageOf([&] { RunReport::Read(folder_.path()); }),
              HasSubstr("status.json: "));
}

}  // namespace
}  // namespace replicant::fleet
