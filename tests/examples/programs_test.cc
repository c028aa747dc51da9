// The examples that have their own loop, run as a user runs them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/fs.h"
#include "base/process.h"

namespace replicant {
namespace {

constexpr auto kTimeout = std::chrono::seconds(120);

std::string Example(const std::string& name) {
  return fmt::format("{}/example_{}", REPLICANT_EXAMPLES, name);
}

// The numbers behind `key` in the output of a command, one for each line.
std::vector<double> NumbersOf(const std::string& output,
                              const std::string& key) {
  std::vector<double> numbers;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(key + " ");
    if (at != std::string::npos) {
      numbers.push_back(std::atof(line.c_str() + at + key.size() + 1));
    }
  }
  return numbers;
}

std::vector<double> Launch(const std::vector<std::string>& command,
                           const std::string& key) {
  const CommandResult result = RunCommand({.command = command}, kTimeout);
  EXPECT_TRUE(result.status.ok()) << result.output;
  return NumbersOf(result.output, key);
}

// --- transparent ---

// The losses are means of f32 in another order.
void ExpectLosses(const std::vector<double>& losses) {
  const std::vector<double> one = Launch({Example("transparent")}, "loss");
  ASSERT_EQ(one.size(), 20U);
  EXPECT_LT(one.back(), 0.5 * one.front());
  ASSERT_EQ(losses.size(), one.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(losses[i], one[i], 2e-5 * one[i] + 2e-6) << i;
  }
}

TEST(TransparentProgramTest, GivesOneProcesssLossesOverTcp) {
  for (const int count : {2, 4}) {
    SCOPED_TRACE(count);
    const TemporaryFolder folder;
    const auto command = [&](int process) {
      return std::vector<std::string>{
          "env", fmt::format("REPLICANT_NUM_PROCESSES={}", count),
          fmt::format("REPLICANT_PROCESS={}", process),
          fmt::format("REPLICANT_RENDEZVOUS={}/meet", folder.path().string()),
          Example("transparent")};
    };
    std::vector<std::unique_ptr<Process>> others;
    for (int process = 1; process < count; ++process) {
      others.push_back(std::make_unique<Process>(
          ProcessOptions{.command = command(process)}));
    }
    ExpectLosses(Launch(command(0), "loss"));
    for (const auto& other : others) {
      const auto status = other->Wait(kTimeout);
      ASSERT_TRUE(status.has_value());
      EXPECT_TRUE(status->ok()) << status->ToString();
    }
  }
}

#if REPLICANT_MPI
TEST(TransparentProgramTest, GivesOneProcesssLossesUnderMpirun) {
  ExpectLosses(
      Launch({"mpirun", "-n", "2", "--oversubscribe", "--allow-run-as-root",
              "--bind-to", "none", Example("transparent")},
             "loss"));
}
#endif

TEST(TransparentProgramTest, RefusesABatchThatCannotBeDivided) {
  // processes that meet, and then find 256 rows for 3
  const TemporaryFolder folder;
  std::vector<std::unique_ptr<Process>> processes;
  const auto command = [&](int process) {
    return std::vector<std::string>{
        "env", "REPLICANT_NUM_PROCESSES=3",
        fmt::format("REPLICANT_PROCESS={}", process),
        fmt::format("REPLICANT_RENDEZVOUS={}/meet", folder.path().string()),
        Example("transparent")};
  };
  for (int process = 1; process < 3; ++process) {
    processes.push_back(
        std::make_unique<Process>(ProcessOptions{.command = command(process)}));
  }
  const CommandResult result = RunCommand({.command = command(0)}, kTimeout);
  EXPECT_FALSE(result.status.ok());
  EXPECT_NE(result.output.find("Distribute: a batch of 256 rows cannot be "
                               "divided evenly among 3 processes"),
            std::string::npos)
      << result.output;
  for (const auto& process : processes) {
    EXPECT_TRUE(process->Wait(kTimeout).has_value());
  }
}

// --- fit ---

TEST(FitProgramTest, LearnsAndGoesOn) {
  const TemporaryFolder folder;
  const std::string run = (folder.path() / "run").string();
  const std::vector<double> first =
      Launch({Example("fit"), run, "8"}, "accuracy");
  EXPECT_EQ(first.size(), 8U);
  const std::vector<double> all =
      Launch({Example("fit"), run, "30"}, "accuracy");
  // the epochs that were left
  EXPECT_EQ(all.size(), 22U);
  EXPECT_GT(all.back(), 0.9);
  EXPECT_TRUE(Launch({Example("fit"), run, "30"}, "accuracy").empty());
}

// --- a3c ---

TEST(A3cProgramTest, BalancesAPole) {
  const std::vector<double> returns = Launch({Example("a3c"), "2"}, "return");
  ASSERT_FALSE(returns.empty());
  // a random policy has about 20
  EXPECT_GT(returns.back(), 100.0);
}

}  // namespace
}  // namespace replicant
