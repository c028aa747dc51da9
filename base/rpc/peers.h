#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"

namespace replicant::rpc {

// A client that said hello to a server.
struct Peer {
  uint64_t id = 0;   // the sender id of its messages: one run of one client
  std::string name;  // the name in its hello ("actor-3")
  Clock::TimePoint last_seen;
  std::string address;  // of the connection that it used last
};

// The clients of a server and when each was last heard from.
//
// Thread-safety: one thread at a time.
class Peers {
 public:
  // At most `max_peers` are held.
  explicit Peers(size_t max_peers) : max_peers_(max_peers) {}

  // Adds a peer, or refreshes it if it is known. False if there is no room.
  [[nodiscard]] bool Hello(uint64_t id, std::string_view name,
                           std::string_view address, Clock::TimePoint now);
  // Refreshes a peer. nullptr if it is not known; otherwise valid until the
  // next call of Hello() or Expire().
  const Peer* Touch(uint64_t id, std::string_view address,
                    Clock::TimePoint now);
  // nullptr if it is not known; otherwise valid until the next call of Hello()
  // or Expire().
  const Peer* Find(uint64_t id) const;
  // Removes and returns the peers last seen before `oldest`. O(peers).
  std::vector<Peer> Expire(Clock::TimePoint oldest);

  // Excludes `duration`, which ends `now`, from the silence of every peer.
  // O(peers).
  void Postpone(Clock::Duration duration, Clock::TimePoint now);

  size_t size() const { return peers_.size(); }

 private:
  const size_t max_peers_;
  std::unordered_map<uint64_t, Peer> peers_;
};

}  // namespace replicant::rpc
