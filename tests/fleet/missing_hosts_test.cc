#include "fleet/missing_hosts.h"

#include <gtest/gtest.h>

namespace replicant::fleet {
namespace {

using std::chrono::seconds;

const Clock::TimePoint kStart{seconds(100)};
constexpr const char* kEndpoint = "tcp://10.0.0.2:7100";

std::vector<MissingHosts::Host> Tasks(int count) {
  std::vector<MissingHosts::Host> tasks;
  tasks.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    tasks.push_back({.label = "array task " + std::to_string(i),
                     .name = "_" + std::to_string(i),
                     .is_end = true});
  }
  return tasks;
}

TEST(MissingHostsTest, NamesThoseThatHaveNotJoinedUntilAllHave) {
  MissingHosts missing(Tasks(3), kEndpoint, kStart);
  EXPECT_EQ(missing.Update({}, kStart + seconds(14)), std::nullopt);
  EXPECT_EQ(missing.Update({"n1.7_1"}, kStart + seconds(15)),
            "2 of 3 hosts have not joined at tcp://10.0.0.2:7100 yet: array "
            "task 0, array task 2");
  EXPECT_EQ(missing.Update({}, kStart + seconds(74)), std::nullopt);
  // task 1 has joined once
  EXPECT_EQ(
      missing.Update({"n1.7_2"}, kStart + seconds(75)),
      "1 of 3 hosts have not joined at tcp://10.0.0.2:7100 yet: array task 0");
  EXPECT_EQ(missing.Update({"n2.7_0"}, kStart + seconds(76)),
            "all 3 hosts have joined");
  EXPECT_EQ(missing.Update({}, kStart + seconds(500)), std::nullopt);
}

TEST(MissingHostsTest, AWholeNameIsNotTheEndOfAnother) {
  MissingHosts missing({{.label = "n1", .name = "n1"}}, kEndpoint, kStart);
  EXPECT_EQ(missing.Update({"bign1"}, kStart + seconds(15)),
            "1 of 1 hosts have not joined at tcp://10.0.0.2:7100 yet: n1");
  EXPECT_EQ(missing.Update({"bign1", "n1"}, kStart + seconds(16)),
            "all 1 hosts have joined");
}

TEST(MissingHostsTest, SaysNothingOfHostsThatComeSoon) {
  MissingHosts missing(Tasks(1), kEndpoint, kStart);
  EXPECT_EQ(missing.Update({"n1.7_0"}, kStart + seconds(5)), std::nullopt);
  EXPECT_EQ(missing.Update({}, kStart + seconds(50)), std::nullopt);
  MissingHosts none({}, kEndpoint, kStart);
  EXPECT_EQ(none.Update({}, kStart + seconds(50)), std::nullopt);
}

TEST(MissingHostsTest, ALongListIsCutShort) {
  MissingHosts missing(Tasks(10), kEndpoint, kStart);
  EXPECT_TRUE(missing.Update({}, kStart + seconds(20))
                  .value()
                  .ends_with("array task 7, 2 more"));
}

}  // namespace
}  // namespace replicant::fleet
