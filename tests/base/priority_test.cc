#include "base/priority.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/error.h"
#include "base/thread.h"
#include "tests/support/turn_length.h"

namespace replicant {
namespace {

int Niceness() { return ::getpriority(PRIO_PROCESS, 0); }

// On a separate thread: there is no way back.
template <typename Work>
void OnThread(const Work& work) {
  Thread("nice", [&](const Thread::StopToken&) { work(); }).Join();
}

TEST(PriorityTest, LevelsAddUpToTheNicest) {
  OnThread([] {
    const int before = Niceness();
    LowerPriority(0);
    EXPECT_EQ(Niceness(), before);
    LowerPriority(2);
    EXPECT_EQ(Niceness(), std::min(19, before + 2));
    LowerPriority(1000);
    EXPECT_EQ(Niceness(), 19);
  });
}

TEST(PriorityTest, IsTheThreadsOwnAndItsChildrens) {
  const int before = Niceness();
  OnThread([] {
    LowerPriority(3);
    const int mine = Niceness();
    OnThread([&] { EXPECT_EQ(Niceness(), mine); });
  });
  EXPECT_EQ(Niceness(), before);
}

TEST(PriorityTest, ShortTurnsKeepTheNiceness) {
  if (TurnLength() == 0) GTEST_SKIP() << "this kernel has turns of one length";
  OnThread([] {
    LowerPriority(2);
    const int before = Niceness();
    ShortenTurns();
    EXPECT_EQ(TurnLength(), 100'000);
    EXPECT_EQ(Niceness(), before);
    OnThread([] { EXPECT_EQ(TurnLength(), 100'000); });
  });
}

TEST(PriorityTest, RefusesToPushForward) {
  try {
    LowerPriority(-1);
    FAIL() << "no InvalidArgument";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(), "LowerPriority: levels must be >= 0, got -1");
  }
}

}  // namespace
}  // namespace replicant
