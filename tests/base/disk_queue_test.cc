#include "base/disk_queue.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>

#include "base/error.h"
#include "tests/support/message_of.h"

namespace replicant {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

TEST(DiskQueueTest, WorkRunsInOrderAndIsFinishedAtTheEnd) {
  std::string order;
  {
    DiskQueue queue;
    for (const char c : {'a', 'b', 'c'}) queue.Post([&, c] { order += c; });
  }
  EXPECT_EQ(order, "abc");
}

// Would catch a loop that a stalled disk holds up.
TEST(DiskQueueTest, NobodyWaitsForAStalledDisk) {
  std::promise<void> disk, begun;
  FakeClock clock;
  DiskQueue queue("disk", clock);
  EXPECT_EQ(queue.WaitSeconds(), 0.0);
  const std::future<void> done = queue.Post([&] {
    begun.set_value();
    disk.get_future().wait();
  });
  begun.get_future().wait();
  clock.Advance(seconds(30));
  EXPECT_EQ(queue.WaitSeconds(), 30.0);
  EXPECT_FALSE(IsDone(done));
  EXPECT_FALSE(queue.Await(milliseconds(1)));
  disk.set_value();
  EXPECT_TRUE(queue.Await(minutes(1)));
  EXPECT_TRUE(IsDone(done));
  EXPECT_EQ(queue.WaitSeconds(), 0.0);
}

TEST(DiskQueueTest, TheFutureHasTheErrorOfTheWork) {
  const auto fail = [] { throw IoError("No space left on device"); };
  DiskQueue queue;
  std::future<void> posted = queue.Post(fail);
  EXPECT_EQ(testing::MessageOf<IoError>([&] { posted.get(); }),
            "No space left on device");
  // without a queue the caller does the work
  std::future<void> run = PostOrRun(nullptr, fail);
  EXPECT_TRUE(IsDone(run));
  EXPECT_EQ(testing::MessageOf<IoError>([&] { run.get(); }),
            "No space left on device");
  EXPECT_FALSE(IsDone(std::future<void>()));
}

// Would catch the last bytes of a file that reach the disk after its owner has
// looked for them.
TEST(DiskQueueTest, WhatTheWorkOwnsIsGoneWhenItCountsAsDone) {
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owned;
  DiskQueue queue;
  queue.Post([owned = std::move(owned)] {});
  EXPECT_TRUE(queue.Await(minutes(1)));
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace replicant
