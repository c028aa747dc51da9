#include "fleet/host_pool.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/fs.h"

namespace replicant::fleet {
namespace {

using std::chrono::seconds;
using Verdict = ReportReply::Verdict;

class HostPoolTest : public ::testing::Test {
 protected:
  JoinReply Join(uint64_t agent, const std::string& host, uint32_t slots = 1) {
    return pool_.Join(
        {.agent = agent, .host = host, .processors = 4, .slots = slots});
  }
  ReportReply Report(uint64_t agent, uint64_t last_order = 0) {
    return pool_.Report({.agent = agent, .last_order = last_order});
  }

  FakeClock clock_;
  TemporaryFolder folder_;
  HostPool pool_{{.files = {{"config.yaml", "x"}},
                  .timeout = seconds(60),
                  .processors_per_process = 2,
                  .clock = &clock_}};
  const RoleId actor_{"actor", 0};
};

TEST_F(HostPoolTest, AHostThatJoinsGetsFilesAndProcesses) {
  EXPECT_FALSE(pool_.HasRoom({"actor", 0}));
  EXPECT_EQ(pool_.Start(actor_, 1, {}, ""), nullptr);
  EXPECT_EQ(Join(1, "a").files, (std::vector<AgentFile>{{"config.yaml", "x"}}));
  ASSERT_TRUE(pool_.HasRoom({"actor", 0}));
  const auto process =
      pool_.Start(actor_, 3, {"--from", "7"}, folder_.path() / "log");
  EXPECT_EQ(process->host(), "a");
  EXPECT_FALSE(pool_.HasRoom({"actor", 0}));
  EXPECT_FALSE(process->Poll());

  const ReportReply reply = Report(1);
  ASSERT_EQ(reply.orders.size(), 1u);
  EXPECT_EQ(reply.orders[0], (AgentOrder{.number = 1,
                                         .kind = AgentOrder::Kind::kStart,
                                         .id = actor_,
                                         .incarnation = 3,
                                         .signal = 0,
                                         .arguments = {"--from", "7"}}));
  EXPECT_FALSE(pool_.HasRoom({"replay", 0}));
  // an answer may be lost: an order comes again until it was carried out
  EXPECT_EQ(Report(1).orders.size(), 1u);
  EXPECT_EQ(Report(1, /*last_order=*/1).orders.size(), 0u);

  process->Signal(SIGTERM);
  ASSERT_EQ(Report(1, 1).orders.size(), 1u);
  EXPECT_EQ(Report(1, 1).orders[0].signal, SIGTERM);

  AgentReport end{.agent = 1, .last_order = 2};
  end.processes = {
      {.id = actor_, .incarnation = 3, .has_ended = true, .code = 4}};
  pool_.Report(end);
  EXPECT_EQ(process->Poll(), (ExitStatus{4, 0}));
  EXPECT_FALSE(process->IsLost());
  EXPECT_TRUE(pool_.HasRoom({"actor", 0}));
}

// A shard's address and checkpoints belong to one host. Would catch a shard
// that another host of the replay takes.
TEST_F(HostPoolTest, AHostCanOfferRoomForOneProcessAlone) {
  pool_.Join({.agent = 1,
              .host = "a",
              .role = "replay-1",
              .processors = 4,
              .slots = 1});
  EXPECT_FALSE(pool_.HasRoom({"replay", 0}));
  EXPECT_FALSE(pool_.HasRoom({"actor", 1}));
  EXPECT_TRUE(pool_.HasRoom({"replay", 1}));
  EXPECT_EQ(pool_.Start({"replay", 1}, 1, {}, folder_.path() / "log")->host(),
            "a");
}

TEST_F(HostPoolTest, TheHostWithTheMostRoomIsTaken) {
  Join(1, "small", 1);
  Join(2, "by processors", 0);  // 4 processors, 2 for each
  const auto first = pool_.Start({"actor", 0}, 1, {}, "");
  const auto second = pool_.Start({"actor", 1}, 1, {}, "");
  const auto third = pool_.Start({"actor", 2}, 1, {}, "");
  EXPECT_EQ(first->host(), "by processors");
  EXPECT_NE(second->host(), third->host());
  EXPECT_FALSE(pool_.HasRoom({"actor", 0}));
}

// Would catch an order of the hosts that is not kept up as processes come and
// go.
TEST_F(HostPoolTest, ASilentHostWithTheMostRoomIsPassedOver) {
  Join(1, "silent", 9);
  clock_.Advance(seconds(5));
  Join(2, "a", 2);
  Join(3, "b", 2);
  const auto first = pool_.Start({"actor", 0}, 1, {}, "");
  const auto second = pool_.Start({"actor", 1}, 1, {}, "");
  const auto third = pool_.Start({"actor", 2}, 1, {}, "");
  EXPECT_EQ(first->host(), "a");
  EXPECT_EQ(second->host(), "b");
  EXPECT_EQ(third->host(), "a");
  AgentReport end{.agent = 2};
  for (const uint32_t index : {0u, 2u}) {
    end.processes.push_back(
        {.id = {"actor", index}, .incarnation = 1, .has_ended = true});
  }
  pool_.Report(end);
  EXPECT_EQ(pool_.Start({"actor", 3}, 1, {}, "")->host(), "a");
  Report(1);
  EXPECT_EQ(pool_.Start({"actor", 4}, 1, {}, "")->host(), "silent");
}

// Would catch a supervisor that kills, or starts twice, what is only cut off.
TEST_F(HostPoolTest, AShortSilenceEndsNothingAndALongOneLosesTheHost) {
  Join(1, "a");
  const auto process = pool_.Start(actor_, 1, {}, "");
  EXPECT_TRUE(process->IsReachable());
  clock_.Advance(seconds(20));
  pool_.Update();
  EXPECT_FALSE(process->IsReachable());
  EXPECT_FALSE(process->Poll());
  EXPECT_FALSE(pool_.HasRoom({"actor", 0}));
  EXPECT_EQ(Report(1).verdict, Verdict::kGoOn);
  EXPECT_TRUE(process->IsReachable());

  clock_.Advance(seconds(66));
  pool_.Update();
  EXPECT_TRUE(process->Poll().has_value());
  EXPECT_TRUE(process->IsLost());
  EXPECT_TRUE(pool_.Hosts().empty());
  EXPECT_EQ(Report(1).verdict, Verdict::kJoinAgain);
}

TEST_F(HostPoolTest, AHostThatLeavesFailsNoProcess) {
  Join(1, "a");
  const auto process = pool_.Start(actor_, 1, {}, "");
  pool_.Report({.agent = 1, .is_leaving = true});
  EXPECT_TRUE(process->IsLost());
  Join(2, "b");
  const auto other = pool_.Start(actor_, 2, {}, "");
  pool_.Lose("b", "its agent has ended");
  EXPECT_TRUE(other->IsLost());
}

// Would catch an actor that waits until its killed agent counts as lost, while
// the next agent of the host has room.
TEST_F(HostPoolTest, AnAgentTakesThePlaceOfAnEarlierOneOfItsName) {
  Join(1, "a");
  const auto process = pool_.Start(actor_, 1, {}, "");
  Join(1, "a");  // an answer was lost
  EXPECT_FALSE(process->Poll());
  Join(2, "a");
  EXPECT_TRUE(process->IsLost());
  EXPECT_TRUE(pool_.HasRoom({"actor", 0}));
}

TEST_F(HostPoolTest, LogsAreWrittenWhereTheyBelong) {
  Join(1, "a");
  const auto log = folder_.path() / "log";
  const auto process = pool_.Start(actor_, 1, {}, log);
  const auto write = [&](uint64_t offset, const std::string& bytes) {
    AgentReport report{.agent = 1};
    report.logs = {
        {.id = actor_, .incarnation = 1, .offset = offset, .bytes = bytes}};
    pool_.Report(report);
  };
  write(0, "one\n");
  write(0, "one\n");  // an answer was lost
  write(4, "two\n");
  const auto deadline = std::chrono::steady_clock::now() + seconds(60);
  while ((!std::filesystem::exists(log) || ReadFile(log).size() < 8) &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(ReadFile(log), "one\ntwo\n");
}

// Would catch a launcher whose memory fills with logs while a disk stands
// still.
TEST_F(HostPoolTest, OnlySoManyBytesOfLogsWaitForTheDisk) {
  // a writer waits for its first reader
  const auto log = folder_.path() / "log";
  ASSERT_EQ(::mkfifo(log.c_str(), 0600), 0);
  int reader = -1;
  {
    HostPool pool({.files = {}, .clock = &clock_});
    pool.Join({.agent = 1, .host = "a", .processors = 1, .slots = 1});
    const auto process = pool.Start(actor_, 1, {}, log);
    const AgentReport no_logs{.agent = 1};
    AgentReport report = no_logs;
    report.logs = {{.id = actor_,
                    .incarnation = 1,
                    .offset = 0,
                    .bytes = std::string(kMaxLogChunkBytes, 'x')}};
    constexpr int64_t kNumFit = HostPool::kMaxLogBytes / kMaxLogChunkBytes;
    for (int64_t i = 0; i < kNumFit; ++i) {
      EXPECT_TRUE(pool.Report(report).takes_logs);
    }
    EXPECT_FALSE(pool.Report(report).takes_logs);
    EXPECT_FALSE(pool.Report(no_logs).takes_logs);
    reader = ::open(log.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    EXPECT_GE(reader, 0);
    const auto deadline = std::chrono::steady_clock::now() + seconds(60);
    while (!pool.Report(no_logs).takes_logs &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_TRUE(pool.Report(report).takes_logs);
  }
  ::close(reader);
}

TEST_F(HostPoolTest, ARunThatIsOverTellsEveryHost) {
  Join(1, "a");
  Join(2, "cut off");
  clock_.Advance(seconds(10));
  Report(1);
  pool_.Dismiss("complete");
  EXPECT_FALSE(pool_.IsDismissed());
  EXPECT_EQ(Report(1).verdict, Verdict::kLeave);
  EXPECT_TRUE(pool_.IsDismissed());
  EXPECT_EQ(Join(3, "late").refusal, "complete");
}

TEST_F(HostPoolTest, AHostThatIsNotNeededIsToldToLeave) {
  HostPool pool({.files = {},
                 .timeout = seconds(60),
                 .idle_timeout = seconds(10),
                 .clock = &clock_});
  for (const auto& [agent, host] : {std::pair(1, "a"), std::pair(2, "b")}) {
    pool.Join({.agent = static_cast<uint64_t>(agent),
               .host = host,
               .processors = 1,
               .slots = 1});
  }
  const auto report = [&](uint64_t agent) {
    return pool.Report({.agent = agent, .last_order = 1});
  };
  const auto process = pool.Start(actor_, 1, {}, "");
  const bool is_on_a = process->host() == "a";
  const uint64_t idle = is_on_a ? 2 : 1;
  // as long as something else may need it
  for (int i = 0; i < 20; ++i) {
    pool.Update(/*have_all_a_place=*/false);
    clock_.Advance(seconds(1));
    EXPECT_EQ(report(1).verdict, Verdict::kGoOn);
    EXPECT_EQ(report(2).verdict, Verdict::kGoOn);
  }
  for (int i = 0; i < 10; ++i) {
    pool.Update(/*have_all_a_place=*/true);
    EXPECT_EQ(report(idle).verdict, Verdict::kGoOn);
    clock_.Advance(seconds(1));
  }
  const ReportReply reply = report(idle);
  EXPECT_EQ(reply.verdict, Verdict::kLeave);
  EXPECT_EQ(reply.reason,
            "the host is not needed: other hosts run all processes of the run");
  EXPECT_EQ(report(3 - idle).verdict, Verdict::kGoOn);
}

}  // namespace
}  // namespace replicant::fleet
