#include "base/rpc/peers.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/clock.h"

namespace replicant::rpc {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr auto kTimeout = seconds(10);

std::vector<std::string> NamesOf(const std::vector<Peer>& peers) {
  std::vector<std::string> names;
  names.reserve(peers.size());
  for (const Peer& peer : peers) names.push_back(peer.name);
  return names;
}

// Would catch a peer that is heard right after a standstill and that, once it
// dies, is kept for as long as the standstill took.
TEST(PeersTest, APostponedSilenceDoesNotEndInTheFuture) {
  FakeClock clock;
  Peers peers(/*max_peers=*/2);
  ASSERT_TRUE(peers.Hello(1, "silent", "a", clock.Now()));
  ASSERT_TRUE(peers.Hello(2, "heard", "b", clock.Now()));
  clock.Advance(seconds(4));
  // the message was read before the standstill was noticed
  clock.Advance(hours(1));
  ASSERT_NE(peers.Touch(2, "b", clock.Now()), nullptr);
  peers.Postpone(hours(1), clock.Now());
  EXPECT_EQ(clock.Now() - peers.Find(1)->last_seen, seconds(4));
  EXPECT_EQ(peers.Find(2)->last_seen, clock.Now());
  clock.Advance(seconds(7));
  EXPECT_EQ(NamesOf(peers.Expire(clock.Now() - kTimeout)),
            std::vector<std::string>{"silent"});
  clock.Advance(seconds(4));
  EXPECT_EQ(NamesOf(peers.Expire(clock.Now() - kTimeout)),
            std::vector<std::string>{"heard"});
}

}  // namespace
}  // namespace replicant::rpc
