#include "base/thread.h"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <string>

#include "base/error.h"

namespace replicant {
namespace {

std::string ParseError(const char* text) {
  try {
    CpuSet::Parse(text);
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "no InvalidArgument";
}

TEST(CpuSetTest, ReadsAndPrintsTheFormOfTaskset) {
  EXPECT_EQ(CpuSet::Parse("3").cpus(), (std::vector<int>{3}));
  EXPECT_EQ(CpuSet::Parse("8,0-2,1").cpus(), (std::vector<int>{0, 1, 2, 8}));
  for (const char* text : {"0", "0-1", "0-3,8", "1,3,5-6"}) {
    EXPECT_EQ(CpuSet::Parse(text).ToString(), text);
  }
  EXPECT_EQ(CpuSet().ToString(), "");
}

TEST(CpuSetTest, RejectsWhatIsNotAList) {
  for (const char* text : {"", "a", "1-", "3-1", "1,,2", "1;2", "-1", "1024",
                           "99999999999999999999"}) {
    EXPECT_EQ(ParseError(text), std::string("CPU list '") + text +
                                    "': expected numbers and ascending ranges "
                                    "below 1024, such as 0-3,8");
  }
  EXPECT_THROW(CpuSet({-1}), InvalidArgument);
}

TEST(ThreadTest, RunsUnderItsNameOnItsProcessors) {
  const CpuSet one({CpuSet::OfThisThread().cpus().back()});
  std::string name;
  CpuSet cpus;
  Thread thread("a-name-longer-than-15", one, [&](const Thread::StopToken&) {
    name = ThreadName();
    cpus = CpuSet::OfThisThread();
  });
  thread.Join();
  EXPECT_EQ(name, "a-name-longer-t");
  EXPECT_EQ(cpus, one);
}

TEST(ThreadTest, ProcessorsThatAreNotThereAreRefusedBeforeAnythingRuns) {
  bool has_run = false;
  EXPECT_THROW(Thread("t", CpuSet({1023}),
                      [&](const Thread::StopToken&) { has_run = true; }),
               InvalidArgument);
  EXPECT_FALSE(has_run);
}

TEST(ThreadTest, JoinThrowsWhatTheFunctionThrewOnce) {
  Thread thread("t", [](const Thread::StopToken&) {
    throw std::runtime_error("from the thread");
  });
  EXPECT_THROW(thread.Join(), std::runtime_error);
  EXPECT_NO_THROW(thread.Join());
}

// Would catch a destructor that waits for ever or lets the thread go on.
// Would catch a service that lives on without the loop that serves.
TEST(ThreadTest, TellsThatItsFunctionHasEnded) {
  std::promise<void> go;
  Thread thread("t", [&](const Thread::StopToken&) {
    go.get_future().wait();
    throw IoError("broken");
  });
  EXPECT_TRUE(thread.IsRunning());
  go.set_value();
  while (thread.IsRunning()) std::this_thread::yield();
  EXPECT_THROW(thread.Join(), IoError);
}

TEST(ThreadTest, DestructorAsksToStopAndWaits) {
  bool has_ended = false;
  {
    const Thread thread("t", [&](const Thread::StopToken& token) {
      while (!token.IsStopRequested()) std::this_thread::yield();
      has_ended = true;
    });
  }
  EXPECT_TRUE(has_ended);
}

}  // namespace
}  // namespace replicant
