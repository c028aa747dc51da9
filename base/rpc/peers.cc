#include "base/rpc/peers.h"

#include <algorithm>
#include <utility>

namespace replicant::rpc {

bool Peers::Hello(uint64_t id, std::string_view name, std::string_view address,
                  Clock::TimePoint now) {
  const auto found = peers_.find(id);
  if (found == peers_.end() && peers_.size() >= max_peers_) return false;
  peers_[id] = {id, std::string(name), now, std::string(address)};
  return true;
}

const Peer* Peers::Touch(uint64_t id, std::string_view address,
                         Clock::TimePoint now) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return nullptr;
  found->second.last_seen = now;
  if (found->second.address != address) found->second.address = address;
  return &found->second;
}

const Peer* Peers::Find(uint64_t id) const {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : &found->second;
}

void Peers::Postpone(Clock::Duration duration, Clock::TimePoint now) {
  for (auto& [id, peer] : peers_) {
    // some have been heard since
    peer.last_seen = std::min(peer.last_seen + duration, now);
  }
}

std::vector<Peer> Peers::Expire(Clock::TimePoint oldest) {
  std::vector<Peer> expired;
  for (auto it = peers_.begin(); it != peers_.end();) {
    if (it->second.last_seen >= oldest) {
      ++it;
      continue;
    }
    expired.push_back(std::move(it->second));
    it = peers_.erase(it);
  }
  return expired;
}

}  // namespace replicant::rpc
