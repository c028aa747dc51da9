// Processes under mpirun of which one is lost: the others name it and end.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "base/process.h"

namespace replicant::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr int kRanks = 3;

// The output of three processes that lose one.
std::string Lose(int rank, const std::string& how) {
  // a blocked call would last for ten minutes
  const CommandResult result = RunCommand(
      {.command = {REPLICANT_MPIRUN, "-n", std::to_string(kRanks),
                   "--oversubscribe", "--allow-run-as-root", "--bind-to",
                   "none", REPLICANT_LOST_RANK, std::to_string(rank), how},
       // seconds after one has ended, in which the others are to say so: then
       // Open MPI kills them
       .environment = {"OMPI_MCA_odls_base_sigkill_timeout=10"}},
      2min);
  EXPECT_FALSE(result.status.ok());
  return result.output;
}

class LostRankTest : public ::testing::TestWithParam<int> {};

TEST_P(LostRankTest, AKilledOneIsNamedByTheOthers) {
  const std::string output = Lose(GetParam(), "kill");
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == GetParam()) continue;
    EXPECT_THAT(output,
                ContainsRegex(fmt::format(
                    "mpi, rank {} of 3: rank {} of 3 \\([^ ]+\\) has lost its "
                    "connection, as one that died; waited for in call 2, "
                    "barrier \\(the second\\), by rank [0-9]",
                    rank, GetParam())));
  }
}

TEST_P(LostRankTest, AStoppedOneIsNamedByTheOthers) {
  const std::string output = Lose(GetParam(), "stop");
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == GetParam()) continue;
    EXPECT_THAT(output,
                ContainsRegex(fmt::format(
                    "mpi, rank {} of 3: rank {} of 3 \\([^ ]+\\) was not heard "
                    "of for 10 s; waited for in call 2, barrier \\(the "
                    "second\\), by rank [0-9]",
                    rank, GetParam())));
  }
}

TEST_P(LostRankTest, OneThatLivesAndDoesNotComeIsNamedAtTheDeadline) {
  const std::string output = Lose(GetParam(), "late");
  EXPECT_THAT(output, ContainsRegex(fmt::format(
                          "mpi: rank [0-9] of 3 waited 10 s in call 2, "
                          "barrier \\(the second\\), for rank {}",
                          GetParam())));
  // the late one hears of it as well
  EXPECT_THAT(output, HasSubstr(fmt::format("rank {} of 3 ends: mpi: rank",
                                            GetParam())));
}

// One of two ranks in a process does not come: its process says which.
TEST_P(LostRankTest, AThreadThatDoesNotComeIsNamedAtTheDeadline) {
  EXPECT_THAT(Lose(GetParam(), "thread"),
              HasSubstr(fmt::format(
                  "mpi, rank {} of 3: thread 0 of 2 waited 10 s in call 2, "
                  "barrier (the second), for thread 1 (in call 1)",
                  GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Ranks, LostRankTest, ::testing::Values(0, 1));

}  // namespace
}  // namespace replicant::comm
