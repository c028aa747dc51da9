#include "fleet/protocol/heartbeat_monitor.h"

#include <fmt/format.h>

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
  role.latest = Entry{std::move(beat), clock_.Now()};
  return role.reply;
}

void HeartbeatMonitor::Expect(const RoleId& id, uint32_t incarnation) {
  MutexLock lock(mutex_);
  roles_[id] = {.incarnation = incarnation};
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

}  // namespace replicant::fleet
