// A whole training that is looked at and ended from outside.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/programs/training_fixture.h"
#include "tests/support/http_get.h"

namespace replicant {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class TrainingControlTest : public TrainingFixture {
 protected:
  // A fleet that trains until it is stopped.
  Process StartTraining(std::vector<std::string> settings = {}) const {
    settings.insert(settings.end(),
                    {"learner.limits.max_steps=0", "evaluation.enabled=false"});
    return Process({.command = Command(settings),
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
  ASSERT_TRUE(AwaitFile(run_ / "status.json", "\"updates_per_s\"")) << Output();
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

// Would catch a process that is lost or restarted when the number changes, a
// resumed run that has forgotten it, and one whose model is at a path of its
// first folder.
TEST_F(TrainingControlTest, TheNumberOfActorsChangesWhileItTrains) {
  const auto scale = [this](const std::string& count) {
    return Fleet({"--scale", run_.string(), count});
  };
  const auto model_of = [](const std::filesystem::path& run) {
    const std::string yaml = ReadFile(run / "config.yaml");
    const size_t begin = yaml.find("  mjcf: ");
    return yaml.substr(begin, yaml.find('\n', begin) - begin);
  };
  {
    Process fleet =
        StartTraining({"task.mjcf=" REPLICANT_SUITE "/cartpole.xml"});
    ASSERT_TRUE(AwaitFile(run_ / "status.json", "\"updates_per_s\""))
        << Output();
    const CommandResult more = scale("actors=3");
    EXPECT_TRUE(more.status.ok()) << more.output;
    EXPECT_EQ(more.output, "3 processes of role actor instead of 1\n");
    ASSERT_TRUE(AwaitFile(folder_.path() / "out", "actor-2 runs")) << Output();
    const CommandResult less = scale("actors=2");
    EXPECT_EQ(less.output, "2 processes of role actor instead of 3\n");
    ASSERT_TRUE(AwaitFile(folder_.path() / "out", "actor-2 has ended"))
        << Output();
    EXPECT_EQ(ProcessOf(fleet.pid(), "--index", "2"), 0);
    EXPECT_NE(ProcessOf(fleet.pid(), "--index", "1"), 0);
    EXPECT_THAT(scale("actors=0").output,
                HasSubstr("--scale actor=0: 0 is outside [1, 100000]"));
    EXPECT_THAT(scale("learner=2").output,
                HasSubstr("role 'learner' has a fixed number of processes; "
                          "allowed: actor"));
    for (const char* const bad : {"actors", "actors=", "actors=two", "=3"}) {
      EXPECT_THAT(scale(bad).output,
                  HasSubstr(fmt::format(
                      "--scale: '{}' is not of the form actors=NUMBER", bad)));
    }
    fleet.Signal(SIGINT);
    const auto status = fleet.Wait(std::chrono::minutes(3));
    ASSERT_TRUE(status && status->ok()) << Output();
    EXPECT_THAT(Output(), ::testing::Not(HasSubstr("restart in")));
  }
  EXPECT_THAT(scale("actors=2").output, HasSubstr("the run has ended"));
  EXPECT_EQ(model_of(run_), "  mjcf: model/model.xml");
  const std::filesystem::path moved = folder_.path() / "moved";
  std::filesystem::rename(run_, moved);
  Process resumed({.command = {REPLICANT_FLEET, "--resume", moved.string()},
                   .stdout_file = folder_.path() / "again",
                   .stderr_file = folder_.path() / "again"});
  EXPECT_TRUE(AwaitFile(folder_.path() / "again", "actor-1 runs"));
  EXPECT_EQ(ProcessOf(resumed.pid(), "--index", "2"), 0);
  resumed.Signal(SIGINT);
  const auto status = resumed.Wait(std::chrono::minutes(3));
  EXPECT_TRUE(status && status->ok()) << ReadFile(folder_.path() / "again");
  EXPECT_EQ(model_of(moved), "  mjcf: model/model.xml");
}

// Would catch a run that counts as complete once its node is drained.
TEST_F(TrainingControlTest, UnderKubernetesTheCodeSaysWhetherTheRunGoesOn) {
  const std::string join = "hosts join at ";
  for (const auto& [signal, code] :
       {std::pair(SIGTERM, 1), std::pair(SIGINT, 0)}) {
    Process fleet(
        {.command =
             Command({"learner.limits.max_steps=0", "evaluation.enabled=false",
                      "cluster={backend: kubernetes, address: 127.0.0.1, "
                      "local_actors: 1}"}),
         .stdout_file = folder_.path() / "out",
         .stderr_file = folder_.path() / "out"});
    ASSERT_TRUE(AwaitFile(run_ / "status.json", "\"updates_per_s\""))
        << Output();
    const size_t begin = Output().rfind(join) + join.size();
    const std::string endpoint =
        Output().substr(begin, Output().find('\n', begin) - begin);
    const auto log = folder_.path() / "agent";
    Process agent({.command = {REPLICANT_FLEET, "--join", endpoint,
                               "--key_file", run_ / "run.key"},
                   .stdout_file = log,
                   .stderr_file = log});
    ASSERT_TRUE(AwaitFile(log, "has joined the run")) << ReadFile(log);
    agent.Signal(signal);
    EXPECT_EQ(agent.Wait(), (ExitStatus{code, 0})) << ReadFile(log);
    fleet.Signal(signal);
    EXPECT_EQ(fleet.Wait(), (ExitStatus{code, 0})) << Output();
    EXPECT_THAT(ReadFile(run_ / "state.yaml"), HasSubstr("status: stopped\n"));
    std::filesystem::remove_all(run_);
    std::filesystem::remove(log);
  }
}

// Would catch a number that was renamed, and a panel that stays empty.
TEST_F(TrainingControlTest, EverySeriesOfTheDashboardIsServed) {
  const std::string dashboard =
      ReadFile(std::filesystem::path(REPLICANT_SOURCE_DIR) /
               "configs/monitoring/grafana_dashboard.json");
  const std::regex series("replicant_[a-zA-Z0-9_]+");
  const std::set<std::string> names(
      std::sregex_token_iterator(dashboard.begin(), dashboard.end(), series),
      std::sregex_token_iterator());
  ASSERT_GT(names.size(), 10U);

  // units of a head with one hidden layer are not watched
  Process fleet({.command = Command({"learner.limits.max_steps=0",
                                     "agent.networks.policy_hidden_sizes=[8,8]",
                                     "fleet.metrics_address=127.0.0.1:0"}),
                 .stdout_file = folder_.path() / "out",
                 .stderr_file = folder_.path() / "out"});
  const std::string url =
      "serving the metrics of every role at http://127.0.0.1:";
  ASSERT_TRUE(AwaitFile(folder_.path() / "out", url)) << Output();
  const int port = std::stoi(Output().substr(Output().find(url) + url.size()));
  std::set<std::string> missing;
  const auto deadline = Clock::Real().Now() + std::chrono::minutes(3);
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const std::string page = testing::HttpGet(port, "/metrics");
    missing.clear();
    for (const std::string& name : names) {
      if (page.find("\n" + name + "{") == std::string::npos) {
        missing.insert(name);
      }
    }
  } while (!missing.empty() && Clock::Real().Now() < deadline);
  EXPECT_THAT(missing, ::testing::IsEmpty());
  fleet.Signal(SIGTERM);
  EXPECT_TRUE(fleet.Wait().ok()) << Output();
}

TEST_F(TrainingControlTest, ADeadFleetIsNotStopped) {
  Process fleet = StartTraining();
  ASSERT_TRUE(AwaitFile(run_ / "status.json", "\"updates_per_s\"")) << Output();
  fleet.Signal(SIGKILL);
  fleet.Wait();
  const CommandResult stop = Fleet({"--stop", run_.string()});
  EXPECT_FALSE(stop.status.ok());
  EXPECT_THAT(stop.output, HasSubstr("no fleet and no learner runs there"));
}

TEST_F(TrainingControlTest, AClosedTerminalEndsTheRunInGoodOrder) {
  ::signal(SIGHUP, SIG_DFL);  // the tests may run under nohup
  Process fleet = StartTraining();
  ASSERT_TRUE(AwaitFile(run_ / "status.json", "\"updates_per_s\"")) << Output();
  fleet.Signal(SIGHUP);
  EXPECT_TRUE(fleet.Wait().ok()) << Output();
  EXPECT_THAT(Fleet({"--status", run_.string()}).output,
              HasSubstr("status   stopped, "));
}

TEST_F(TrainingControlTest, ARunOutlivesTheReaderOfItsOutput) {
  std::vector<std::string> command = {
      "bash", "-c", "set -o pipefail; \"$@\" 2>&1 | head -n 1", "bash"};
  const std::vector<std::string> fleet =
      Command({"evaluation.enabled=false", "fleet.progress_interval_s=0.1"});
  command.insert(command.end(), fleet.begin(), fleet.end());
  const CommandResult result =
      RunCommand({.command = command}, std::chrono::minutes(3));
  EXPECT_TRUE(result.status.ok()) << result.status.ToString();
  EXPECT_THAT(Fleet({"--status", run_.string()}).output,
              HasSubstr("status   complete, "));
}

// The lock names the host of the fleet, whose processes are out of reach.
TEST_F(TrainingControlTest, ARunOfAnotherHostIsStoppedThere) {
  Process fleet = StartTraining();
  ASSERT_TRUE(AwaitFile(run_ / "status.json", "\"updates_per_s\"")) << Output();
  EXPECT_TRUE(Fleet({"--stop", run_.string()}).status.ok());
  AtomicWriteFile(run_ / "lock", "elsewhere/17");
  const CommandResult stop = Fleet({"--stop", run_.string()});
  EXPECT_FALSE(stop.status.ok());
  EXPECT_THAT(stop.output, HasSubstr("hint: run fleet --stop on elsewhere"));
}

// A fleet that lets hosts join is stopped from any of them.
TEST_F(TrainingControlTest, ARunThatHostsJoinIsStoppedFromAnother) {
  Process fleet(
      {.command = Command(
           {"learner.limits.max_steps=0", "evaluation.enabled=false",
            "cluster={backend: slurm, address: 127.0.0.1, local_actors: 1}"}),
       .stdout_file = folder_.path() / "out",
       .stderr_file = folder_.path() / "out"});
  ASSERT_TRUE(AwaitFile(run_ / "status.json", "\"updates_per_s\"")) << Output();
  AtomicWriteFile(run_ / "lock", "elsewhere/17");
  const CommandResult stop = Fleet({"--stop", run_.string()});
  EXPECT_TRUE(stop.status.ok()) << stop.output;
  EXPECT_THAT(stop.output, AllOf(HasSubstr("process elsewhere/17 drains"),
                                 HasSubstr("it has ended")));
  EXPECT_TRUE(fleet.Wait().ok()) << Output();
  EXPECT_THAT(Output(), HasSubstr("stopped: stopped by fleet --stop of "));
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
