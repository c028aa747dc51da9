#include "base/file_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/error.h"
#include "tests/support/message_of.h"

namespace replicant {
namespace {

using testing::MessageOf;

rlimit Limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

// Whether the limits could be set: root may raise the hard one. Each test is a
// process.
bool SetLimit(rlim_t soft, rlim_t hard) {
  const rlimit limit{soft, hard};
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

TEST(FileLimitTest, TheHardLimitIsTaken) {
  ASSERT_TRUE(SetLimit(/*soft=*/64, /*hard=*/300));
  RaiseFileLimit();
  EXPECT_EQ(Limit().rlim_cur, 300u);
  EXPECT_EQ(Limit().rlim_max, 300u);
}

// Would catch a limit that is lowered, and one so high that a program that
// closes every descriptor takes minutes.
TEST(FileLimitTest, AHighLimitIsNeitherRaisedNorLowered) {
  constexpr rlim_t kMost = 65536;
  if (!SetLimit(/*soft=*/64, /*hard=*/kMost + 10)) {
    GTEST_SKIP() << "the hard limit is low";
  }
  RaiseFileLimit();
  EXPECT_EQ(Limit().rlim_cur, kMost);
  ASSERT_TRUE(SetLimit(/*soft=*/kMost + 5, /*hard=*/kMost + 10));
  RaiseFileLimit();
  EXPECT_EQ(Limit().rlim_cur, kMost + 5);
}

TEST(FileLimitTest, TooFewFilesAreRefusedWithTheKeyThatNeedsThem) {
  ASSERT_TRUE(SetLimit(/*soft=*/200, /*hard=*/Limit().rlim_max));
  EXPECT_NO_THROW(CheckFileLimit("actors.count", 200));
  EXPECT_EQ(MessageOf<ConfigError>([] { CheckFileLimit("actors.count", 201); }),
            "actors.count: about 201 open files and connections are needed, "
            "and the system allows 200; hint: ulimit -Hn 201, or LimitNOFILE "
            "of a systemd unit");
}

}  // namespace
}  // namespace replicant
