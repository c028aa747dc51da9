#include "replicator/comm/rank_table.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>

namespace replicant::comm {
namespace {

using namespace std::chrono_literals;

class RankTableTest : public ::testing::Test {
 protected:
  // Time passes while somebody asks.
  std::optional<std::string> FindLostAfter(Clock::Duration time) {
    std::optional<std::string> lost;
    for (Clock::Duration t{0}; t < time && !lost; t += 100ms) {
      clock_.Advance(100ms);
      lost = table_.FindLost();
    }
    return lost;
  }

  FakeClock clock_;
  RankTable table_{{"a/1", "b/2", "c/3"}, 10s, 1s, &clock_};
};

TEST_F(RankTableTest, WhoIsHeardOfOrNotWatchedIsNotLost) {
  table_.Watch(1);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(FindLostAfter(9s), std::nullopt);
    table_.Hear(1, {});
  }
  EXPECT_TRUE(table_.IsAnyWatched());
  table_.Unwatch(1);
  EXPECT_FALSE(table_.IsAnyWatched());
  EXPECT_EQ(FindLostAfter(30s), std::nullopt);
}

TEST_F(RankTableTest, NamesTheSilentRankAndTheCallThatItIsMissingFrom) {
  table_.Watch(1);
  table_.Watch(2);
  table_.Hear(1, {.num_calls = 70, .call = ""});
  EXPECT_EQ(FindLostAfter(9s), std::nullopt);
  table_.Hear(0, {.num_calls = 72, .call = "barrier"});
  table_.Hear(2, {.num_calls = 71, .call = "all_reduce sum f32[3] (s.cc:4)"});
  EXPECT_EQ(FindLostAfter(2s),
            "rank 1 of 3 (b/2) was not heard of for 10 s; waited for in call "
            "71, all_reduce sum f32[3] (s.cc:4), by rank 2");
  // once
  EXPECT_EQ(FindLostAfter(1s), std::nullopt);
}

// In a tree of messages a rank may wait for one that waits itself.
TEST_F(RankTableTest, KnowsWhoIsNotInTheFirstCallInWhichOthersWait) {
  EXPECT_EQ(table_.DescribeLate(), "");
  table_.Hear(0, {.num_calls = 71, .call = "barrier"});
  table_.Hear(1, {.num_calls = 72, .call = "barrier"});
  table_.Hear(2, {.num_calls = 70, .call = ""});
  EXPECT_EQ(table_.DescribeLate(), "; not in call 71: rank 2 of 3 (c/3)");
  // rank 2 has left it
  table_.Hear(2, {.num_calls = 71, .call = ""});
  EXPECT_EQ(table_.DescribeLate(), "");
}

TEST_F(RankTableTest, KnowsWhichCallsALostRankHasDone) {
  const auto lost_in = [&](const RankState& lost, const RankState& other) {
    RankTable table({"a/1", "b/2", "c/3"}, 10s, 1s, &clock_);
    table.Watch(1);
    table.Hear(1, lost);
    table.Hear(0, other);
    table.Hear(2, other);
    table.Disconnect(1);
    clock_.Advance(1s);
    return table.FindLost().value_or("");
  };
  const std::string who =
      "rank 1 of 3 (b/2) has lost its connection, as one that died; ";
  // it hangs in the call itself
  EXPECT_EQ(lost_in({7, "barrier"}, {7, "barrier"}),
            who + "waited for in call 7, barrier, by rank 0, rank 2");
  // it has left the call that others are still in
  EXPECT_EQ(lost_in({7, ""}, {7, "barrier"}), who + "it was past call 7");
  // the others have not come yet
  EXPECT_EQ(lost_in({7, "barrier"}, {6, ""}),
            who + "it was in call 7, barrier");
}

TEST_F(RankTableTest, AConnectionThatComesBackInTimeIsForgiven) {
  table_.Watch(2);
  table_.Disconnect(2);
  EXPECT_EQ(FindLostAfter(900ms), std::nullopt);
  table_.Reconnect(2);
  EXPECT_EQ(FindLostAfter(5s), std::nullopt);
  table_.Disconnect(2);
  // a second word of the same changes nothing
  EXPECT_EQ(FindLostAfter(900ms), std::nullopt);
  table_.Disconnect(2);
  EXPECT_EQ(FindLostAfter(200ms),
            "rank 2 of 3 (c/3) has lost its connection, as one that died; it "
            "was past call 0");
}

// A process that was stopped itself blames nobody for the time.
TEST_F(RankTableTest, TimeInWhichNobodyAskedCountsForNobody) {
  table_.Watch(1);
  clock_.Advance(60s);
  EXPECT_EQ(table_.FindLost(), std::nullopt);
  EXPECT_EQ(FindLostAfter(9s), std::nullopt);
  EXPECT_NE(FindLostAfter(2s), std::nullopt);
}

}  // namespace
}  // namespace replicant::comm
