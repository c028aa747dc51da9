#include "programs/run/launcher_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "tests/support/message_of.h"

namespace replicant::programs {
namespace {

using ::testing::HasSubstr;
using testing::MessageOf;

std::optional<LauncherPlace> Find(
    const std::map<std::string, std::string>& variables) {
  return FindLauncherPlace([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

void ExpectPlace(const std::optional<LauncherPlace>& place,
                 const std::string& role, int index, int num_workers,
                 const std::string& rendezvous) {
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->role, role);
  EXPECT_EQ(place->index, index);
  EXPECT_EQ(place->num_workers, num_workers);
  EXPECT_EQ(place->rendezvous, rendezvous);
}

TEST(LauncherPlaceTest, WithoutALauncherThereIsNone) {
  EXPECT_FALSE(Find({}).has_value());
  EXPECT_FALSE(Find({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).has_value());
  // the shell of a batch job of Slurm is no task of a step
  EXPECT_FALSE(
      Find({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).has_value());
}

TEST(LauncherPlaceTest, ReadsTorchrun) {
  std::map<std::string, std::string> variables = {{"RANK", "2"},
                                                  {"WORLD_SIZE", "4"}};
  ExpectPlace(Find(variables), "worker", 2, 4, "");
  variables["MASTER_ADDR"] = "first";
  variables["MASTER_PORT"] = "29500";
  ExpectPlace(Find(variables), "worker", 2, 4, "tcp://first:29500");
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  ExpectPlace(Find(variables), "worker", 2, 4, "tcp://first:29501");
}

TEST(LauncherPlaceTest, ReadsMpirunBeforeSlurm) {
  const std::map<std::string, std::string> slurm = {
      {"SLURM_PROCID", "1"},
      {"SLURM_STEP_NUM_TASKS", "2"},
      {"SLURM_STEP_NODELIST", "gpu[07-09,12],login"},
      {"SLURM_JOB_ID", "41234567"}};
  ExpectPlace(Find(slurm), "worker", 1, 2, "tcp://gpu07:24567");
  auto both = slurm;
  both["OMPI_COMM_WORLD_RANK"] = "3";
  both["OMPI_COMM_WORLD_SIZE"] = "8";
  ExpectPlace(Find(both), "worker", 3, 8, "");
  ExpectPlace(Find({{"PMI_RANK", "5"}, {"PMI_SIZE", "6"}}), "worker", 5, 6, "");
  auto one_host = slurm;
  one_host["SLURM_STEP_NODELIST"] = "node3,node4";
  EXPECT_EQ(Find(one_host)->rendezvous, "tcp://node3:24567");
}

TEST(LauncherPlaceTest, ReadsEveryListOfHostsOfSlurm) {
  const auto first = [](const std::string& nodes) {
    return Find({{"SLURM_PROCID", "0"},
                 {"SLURM_STEP_NUM_TASKS", "2"},
                 {"SLURM_STEP_NODELIST", nodes},
                 {"SLURM_JOB_ID", "0"}})
        ->rendezvous;
  };
  EXPECT_EQ(first("rack[0-1]n[01-04]"), "tcp://rack0n01:20000");
  EXPECT_EQ(first("b2u[05,02]n3"), "tcp://b2u05n3:20000");
  EXPECT_EQ(first("gpu[07-09].cluster"), "tcp://gpu07.cluster:20000");
  EXPECT_EQ(first("gpu[7],login"), "tcp://gpu7:20000");
  for (const std::string bad : {"", ",n1", "[n1-n3]", "n[1", "n1]", "n[]"}) {
    EXPECT_EQ(MessageOf<ConfigError>([&] { first(bad); }),
              "SLURM_STEP_NODELIST='" + bad +
                  "': want a list of hosts such as rack[0-1]n[01-04],login");
  }
}

TEST(LauncherPlaceTest, ReadsTensorFlow) {
  const std::string cluster =
      R"("cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"],
         "ps": ["d:4", "e:5"]})";
  const auto find = [&](const std::string& task) {
    return Find({{"TF_CONFIG", "{" + cluster + ", \"task\": " + task + "}"}});
  };
  ExpectPlace(find(R"({"type": "chief", "index": 0})"), "worker", 0, 3,
              "tcp://a:1");
  ExpectPlace(find(R"({"type": "worker", "index": 1})"), "worker", 2, 3,
              "tcp://a:1");
  ExpectPlace(find(R"({"type": "ps", "index": 1})"), "server", 1, 3,
              "tcp://a:1");
}

TEST(LauncherPlaceTest, NamesWhatDoesNotFit) {
  EXPECT_EQ(MessageOf<ConfigError>([] {
              Find({{"RANK", "two"}, {"WORLD_SIZE", "4"}});
            }),
            "RANK='two': want a number of 0 or more");
  EXPECT_EQ(MessageOf<ConfigError>([] {
              Find({{"PMI_RANK", "4"}, {"PMI_SIZE", "4"}});
            }),
            "PMI_RANK=4: want less than PMI_SIZE=4");
  EXPECT_THAT(MessageOf<ConfigError>([] {
                Find({{"TF_CONFIG", "{"}});
              }),
              HasSubstr("TF_CONFIG: "));
  EXPECT_EQ(MessageOf<ConfigError>([] {
              Find({{"TF_CONFIG", R"({"cluster": {"worker": ["a:1", "b:2"]},
                                "task": {"type": "evaluator", "index": 0}})"}});
            }),
            "TF_CONFIG: task type 'evaluator'; want chief, worker or ps");
  EXPECT_EQ(MessageOf<ConfigError>([] {
              Find({{"TF_CONFIG", R"({"cluster": {"worker": ["a:1", "b:2"]},
                                "task": {"type": "worker", "index": 2}})"}});
            }),
            "TF_CONFIG: task worker 2 is not in the cluster");
}

}  // namespace
}  // namespace replicant::programs
