// Eight processes over TCP of which one is lost: the others name it, its
// address and the call, and end.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/fs.h"
#include "base/process.h"

namespace replicant::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::ContainsRegex;

constexpr int kRanks = 8;
// a blocked call would last for ten minutes
constexpr auto kPatience = 2min;

class LostTcpRankTest : public ::testing::TestWithParam<int> {
 protected:
  LostTcpRankTest()
      : folder_(std::filesystem::temp_directory_path() /
                fmt::format("lost-tcp-rank-{}", getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~LostTcpRankTest() override { std::filesystem::remove_all(folder_); }

  // Loses the rank; all others have ended when it returns.
  void Lose(int lost, const std::string& how) {
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.push_back(std::make_unique<Process>(ProcessOptions{
          .command = {REPLICANT_LOST_RANK, std::to_string(lost), how,
                      (folder_ / "rendezvous").string(), std::to_string(rank),
                      std::to_string(kRanks)},
          .stderr_file = folder_ / std::to_string(rank)}));
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      // a stopped one lives until this returns
      if (rank == lost) continue;
      const auto status = ranks[static_cast<size_t>(rank)]->Wait(kPatience);
      ASSERT_TRUE(status.has_value()) << OutputOf(rank);
      EXPECT_FALSE(status->ok());
    }
  }
  std::string OutputOf(int rank) const {
    return ReadFile(folder_ / std::to_string(rank));
  }
  // Expects all ranks but the lost one to say so, with `why`.
  void ExpectNamed(int lost, const std::string& why) const {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == lost) continue;
      EXPECT_THAT(
          OutputOf(rank),
          ContainsRegex(fmt::format(
              "tcp, rank {} of 8: rank {} of 8 \\([^ ]+ at [0-9.]+:[0-9]+\\) "
              "{}; waited for in call [0-9]+, barrier \\(the second\\), by "
              "rank "
              "[0-9]",
              rank, lost, why)));
    }
  }

  const std::filesystem::path folder_;
};

INSTANTIATE_TEST_SUITE_P(Ranks, LostTcpRankTest, ::testing::Values(0, 5));

TEST_P(LostTcpRankTest, AKilledOneIsNamedByTheOthers) {
  Lose(GetParam(), "kill");
  ExpectNamed(GetParam(), "has lost its connection, as one that died");
}

TEST_P(LostTcpRankTest, AStoppedOneIsNamedByTheOthers) {
  Lose(GetParam(), "stop");
  ExpectNamed(GetParam(), "was not heard of for 10 s");
}

TEST_F(LostTcpRankTest, OneThatDoesNotComeIsNamedAtTheDeadline) {
  Lose(/*lost=*/5, "late");
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == 5) continue;
    EXPECT_THAT(
        OutputOf(rank),
        ContainsRegex(fmt::format(
            "tcp, rank {} of 8: tcp: rank [0-9] of 8 waited 10 s in call 2, "
            "barrier \\(the second\\), for rank [^;]+; not in call 2: rank 5 "
            "of 8 \\([^ ]+ at 127.0.0.1:[0-9]+\\)",
            rank)));
  }
}

// The link between two hosts is cut: those on one side name the rank on the
// other, which names the first of them.
TEST_F(LostTcpRankTest, APartitionIsNamedOnBothSides) {
  const CommandResult result =
      RunCommand({.command = {REPLICANT_CUT_NETWORK, REPLICANT_LOST_RANK,
                              folder_.string(), std::to_string(kRanks)}},
                 kPatience);
  if (result.status.code == 77) {
    GTEST_SKIP() << "no network namespaces for this user";
  }
  ASSERT_TRUE(result.status.ok()) << result.output;
  constexpr const char* kWhy =
      "(was not heard of for 10 s|has lost its connection, as one that died)";
  for (int rank = 0; rank + 1 < kRanks; ++rank) {
    EXPECT_THAT(OutputOf(rank),
                ContainsRegex(fmt::format("tcp, rank {} of 8: rank 7 of 8 "
                                          "\\([^ ]+ at 10.213.9.2:[0-9]+\\) {}",
                                          rank, kWhy)));
  }
  EXPECT_THAT(
      OutputOf(kRanks - 1),
      ContainsRegex(fmt::format("tcp, rank 7 of 8: rank 0 of 8 \\([^ ]+ "
                                "at 10.213.9.1:[0-9]+\\) {}",
                                kWhy)));
}

}  // namespace
}  // namespace replicant::comm
