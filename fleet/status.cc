#include "fleet/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/metrics/format.h"

namespace replicant::fleet {
namespace {

// A side that waits less than this share of the time is no bottleneck.
constexpr double kLeastShare = 0.05;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

void FleetStatus::Update(const std::vector<Supervisor::RoleView>& roles,
                         const std::vector<rpc::HeartbeatMonitor::Entry>& beats,
                         bool is_stopping, Clock::TimePoint now) {
  MutexLock lock(mutex_);
  NoteDataFlow(roles);
  for (const auto& entry : beats) TakeIn(entry, now);
  limit_of_phases_ = is_stopping ? "stopping" : LimitOfPhases(roles);
}

void FleetStatus::NoteDataFlow(const std::vector<Supervisor::RoleView>& roles) {
  for (const Supervisor::RoleView& role : roles) {
    switch (role.data_flow) {
      case DataFlow::kProduces:
        producer_ = role.id.role;
        break;
      case DataFlow::kBuffers:
        buffer_ = role.id.role;
        break;
      case DataFlow::kConsumes:
        consumer_ = role.id.role;
        break;
      case DataFlow::kNone:
        break;
    }
  }
}

void FleetStatus::TakeIn(const rpc::HeartbeatMonitor::Entry& entry,
                         Clock::TimePoint now) {
  const auto [found, is_new] = members_.try_emplace(
      entry.beat.id, Member{.waiting = metrics::RateMeter(window_)});
  Member& member = found->second;
  if (!is_new && entry.beat.incarnation != member.incarnation) {
    for (const auto& [name, number] : member.beat.numbers) {
      if (number.kind == rpc::BeatNumber::Kind::kCounter) {
        member.ended[name] += number.value;
      }
    }
  }
  if (is_new || entry.time != member.beat_time) {
    // close to the time at which the heartbeat was sent
    member.waiting.Add(now, entry.beat.waiting_s);
    if (!entry.beat.reason.empty()) member.reason = entry.beat.reason;
  }
  member.incarnation = entry.beat.incarnation;
  member.beat = entry.beat;
  member.beat_time = entry.time;
}

std::string FleetStatus::LimitOfPhases(
    const std::vector<Supervisor::RoleView>& roles) const {
  for (const Supervisor::RoleView& role : roles) {
    const std::string name = role.id.ToString();
    switch (role.phase) {
      case RolePhase::kStarting:
        return name + " starts";
      case RolePhase::kKilled:
        return name + " is killed";
      case RolePhase::kBackingOff:
        return fmt::format("{} restarts in {:.0f} s ({})", name,
                           std::ceil(role.backoff_s), role.last_failure);
      case RolePhase::kPending:
      case RolePhase::kReady:
      case RolePhase::kEnded:
        break;
    }
  }
  return "";
}

double FleetStatus::Sum(std::string_view role, std::string_view number) const {
  MutexLock lock(mutex_);
  double sum = 0.0;
  bool has_any = false;
  const std::string name(number);
  for (const auto& [id, member] : members_) {
    if (id.role != role) continue;
    const auto now = member.beat.numbers.find(name);
    const auto ended = member.ended.find(name);
    if (now != member.beat.numbers.end()) {
      sum += now->second.value;
      has_any = true;
    }
    if (ended != member.ended.end()) {
      sum += ended->second;
      has_any = true;
    }
  }
  return has_any ? sum : kNaN;
}

double FleetStatus::Mean(std::string_view role, std::string_view number) const {
  MutexLock lock(mutex_);
  double sum = 0.0;
  int count = 0;
  for (const auto& [id, member] : members_) {
    const auto found = member.beat.numbers.find(std::string(number));
    if (id.role != role || found == member.beat.numbers.end()) continue;
    sum += found->second.value;
    ++count;
  }
  return count == 0 ? kNaN : sum / count;
}

double FleetStatus::Last(std::string_view role, std::string_view number) const {
  MutexLock lock(mutex_);
  double last = kNaN;
  Clock::TimePoint time = Clock::TimePoint::min();
  for (const auto& [id, member] : members_) {
    const auto found = member.beat.numbers.find(std::string(number));
    if (id.role != role || found == member.beat.numbers.end()) continue;
    if (member.beat_time >= time) {
      time = member.beat_time;
      last = found->second.value;
    }
  }
  return last;
}

double FleetStatus::WaitingShare(std::string_view role) const {
  double sum = 0.0;
  int count = 0;
  for (const auto& [id, member] : members_) {
    const double share = member.waiting.rate();
    if (id.role != role || std::isnan(share)) continue;
    sum += std::clamp(share, 0.0, 1.0);
    ++count;
  }
  return count == 0 ? 0.0 : sum / count;
}

std::string FleetStatus::Reason(std::string_view role) const {
  for (const std::string_view source : {role, std::string_view(buffer_)}) {
    for (const auto& [id, member] : members_) {
      if (id.role == source && !member.reason.empty()) return member.reason;
    }
  }
  return "";
}

std::string FleetStatus::Limit() const {
  MutexLock lock(mutex_);
  if (!limit_of_phases_.empty()) return limit_of_phases_;
  const double consumer_share = WaitingShare(consumer_);
  const double producer_share = WaitingShare(producer_);
  const double share = std::max(consumer_share, producer_share);
  if (share < kLeastShare) return "none";
  // the side that waits is held up by the other one
  const bool is_consumer = consumer_share >= producer_share;
  const std::string reason = Reason(is_consumer ? consumer_ : producer_);
  const std::string sides =
      is_consumer ? fmt::format("{}s: {} waits", producer_, consumer_)
                  : fmt::format("{}: {}s wait", consumer_, producer_);
  return fmt::format("{} {:.0f}%{}", sides, 100.0 * share,
                     reason.empty() ? "" : " (" + reason + ")");
}

void FleetStatus::AddTo(metrics::ProgressLine& line,
                        const std::vector<ProgressField>& fields) const {
  for (const ProgressField& field : fields) {
    const auto sum = [this, field] {
      const double value = Sum(field.role, field.number);
      return std::isnan(value) ? 0.0 : value;
    };
    switch (field.kind) {
      case ProgressField::Kind::kCount:
        line.AddCount(field.label, sum, field.goal);
        break;
      case ProgressField::Kind::kRate:
        line.AddRate(field.label, sum);
        break;
      case ProgressField::Kind::kValue:
        line.AddText(field.label, [this, field] {
          const double mean = Mean(field.role, field.number);
          return std::isnan(mean) ? std::string("-")
                                  : metrics::FormatQuantity(mean);
        });
        break;
    }
  }
  line.AddText("limit", [this] { return Limit(); });
}

}  // namespace replicant::fleet
