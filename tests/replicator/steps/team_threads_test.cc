// Teams of a system that refuses threads.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <system_error>

#include "replicator/steps/asynchronous_team.h"
#include "replicator/steps/replica_team.h"

namespace {

// Threads that may still be started.
std::atomic<int> threads_left{1000};

}  // namespace

// The one that std::thread calls.
extern "C" int pthread_create(pthread_t* thread,
                              const pthread_attr_t* attributes,
                              void* (*function)(void*),
                              void* argument) noexcept {
  if (threads_left-- <= 0) return EAGAIN;
  static const auto create = reinterpret_cast<decltype(&pthread_create)>(
      dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, function, argument);
}

namespace replicant::replicator {
namespace {

template <typename Team>
class TeamThreadsTest : public ::testing::Test {};

using Teams = ::testing::Types<ReplicaTeam, AsynchronousTeam>;
TYPED_TEST_SUITE(TeamThreadsTest, Teams);

TYPED_TEST(TeamThreadsTest, AThreadThatCannotBeStartedIsAnError) {
  for (int count = 0; count < 4; ++count) {
    threads_left = count;
    EXPECT_THROW(TypeParam(4), std::system_error) << count;
  }
  threads_left = 4;
  EXPECT_EQ(TypeParam(4).size(), 4);
}

}  // namespace
}  // namespace replicant::replicator
