#include "fleet/protocol/heartbeat_monitor.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace replicant::fleet {

void HeartbeatMonitor::AttachTo(rpc::Server& server) {
  server.Handle(
      kBeatKind, [this](rpc::Request& request, rpc::Responder responder) {
        responder.Reply(
            rpc::EncodeMessage(Receive(Heartbeat::Decode(request.payload))));
      });
}

BeatReply HeartbeatMonitor::Receive(Heartbeat beat) {
  MutexLock lock(mutex_);
  const auto found = roles_.find(beat.id);
  if (found == roles_.end()) {
    return {BeatReply::Order::kStop, "this supervisor has no such role"};
  }
  Role& role = found->second;
  if (beat.incarnation != role.incarnation) {
    return {
        BeatReply::Order::kStop,
        fmt::format("incarnation {} has taken its place", role.incarnation)};
  }
  if (role.latest) {
    by_arrival_.splice(by_arrival_.end(), by_arrival_, role.place);
  } else {
    role.place = by_arrival_.insert(by_arrival_.end(), &role);
  }
  role.arrival = ++num_arrivals_;
  if (!role.has_ended && !beat.endpoint.empty()) {
    endpoints_[beat.id] = beat.endpoint;
  }
  role.latest = Entry{std::move(beat), clock_.Now()};
  BeatReply reply = role.reply;
  for (const auto& [id, endpoint] : endpoints_) {
    reply.endpoints.push_back({id, endpoint});
  }
  return reply;
}

void HeartbeatMonitor::Expect(const RoleId& id, uint32_t incarnation) {
  MutexLock lock(mutex_);
  Role& role = roles_[id];
  if (role.latest) by_arrival_.erase(role.place);
  role = {.incarnation = incarnation};
  endpoints_.erase(id);
}

void HeartbeatMonitor::NoteEnd(const RoleId& id) {
  MutexLock lock(mutex_);
  const auto found = roles_.find(id);
  if (found == roles_.end()) return;
  found->second.has_ended = true;
  endpoints_.erase(id);
}

void HeartbeatMonitor::OrderStop(const RoleId& id, std::string reason) {
  MutexLock lock(mutex_);
  const auto found = roles_.find(id);
  if (found == roles_.end()) return;
  found->second.reply = {BeatReply::Order::kStop, std::move(reason)};
}

std::optional<HeartbeatMonitor::Entry> HeartbeatMonitor::Latest(
    const RoleId& id) const {
  MutexLock lock(mutex_);
  const auto found = roles_.find(id);
  return found == roles_.end() ? std::nullopt : found->second.latest;
}

std::vector<HeartbeatMonitor::Entry> HeartbeatMonitor::All() const {
  MutexLock lock(mutex_);
  std::vector<Entry> entries;
  for (const auto& [id, role] : roles_) {
    if (role.latest) entries.push_back(*role.latest);
  }
  return entries;
}

std::vector<HeartbeatMonitor::Entry> HeartbeatMonitor::NewSince(
    uint64_t* cursor) const {
  MutexLock lock(mutex_);
  auto first = by_arrival_.end();
  while (first != by_arrival_.begin() &&
         (*std::prev(first))->arrival > *cursor) {
    --first;
  }
  std::vector<Entry> entries;
  for (; first != by_arrival_.end(); ++first) {
    entries.push_back(*(*first)->latest);
  }
  *cursor = num_arrivals_;
  return entries;
}

}  // namespace replicant::fleet
