#include "base/nearest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace replicant {
namespace {

TEST(NearestTest, EditDistanceCountsEachKindOfEditOnce) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("level", "levl"), 1);
  EXPECT_EQ(EditDistance("level", "lebel"), 1);
  EXPECT_EQ(EditDistance("level", "lveel"), 1);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
}

TEST(NearestTest, FindsTheMisspeltName) {
  const std::vector<std::string> names = {"level", "file", "console"};
  EXPECT_EQ(NearestName("levle", names), "level");
  EXPECT_EQ(NearestName("Console", names), "console");
}

TEST(NearestTest, FindsANameThatWasOnlyBegun) {
  EXPECT_EQ(NearestName("capacity", {"shards", "capacity_items"}),
            "capacity_items");
  EXPECT_EQ(NearestName("ca", {"shards", "capacity_items"}), "");
}

// Catches a hint that would only confuse.
TEST(NearestTest, OffersNothingForAnUnrelatedWord) {
  const std::vector<std::string> names = {"level", "file", "console"};
  EXPECT_EQ(NearestName("capacity", names), "");
  EXPECT_EQ(NearestName("xy", {"ab"}), "");
  EXPECT_EQ(NearestName("", {"a"}), "");
  EXPECT_EQ(NearestName("level", {}), "");
}

// Catches quadratic time for a hostile key.
TEST(NearestTest, IgnoresAnEndlessKey) {
  EXPECT_EQ(NearestName(std::string(100'000, 'a'), {"aa"}), "");
}

}  // namespace
}  // namespace replicant
