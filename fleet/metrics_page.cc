#include "fleet/metrics_page.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace replicant::fleet {
namespace {

// Maximum number of series with one name in the registry.
constexpr size_t kMaxRoles = 10000;

// The name without its suffix. Prometheus allows fewer characters in a name
// than a heartbeat does.
std::string SeriesName(const std::string& role, const std::string& number) {
  const bool names_role = number.starts_with(role + "/");
  std::string name = (names_role ? "replicant_" : "replicant_role_") + number;
  std::ranges::replace_if(
      name,
      [](char c) {
        const bool is_allowed = (c >= 'a' && c <= 'z') ||
                                (c >= 'A' && c <= 'Z') ||
                                (c >= '0' && c <= '9') || c == '_';
        return !is_allowed;
      },
      '_');
  return name;
}

// Serves `registry` at `address`; an error names `key`.
metrics::Exposer Listen(std::string_view key, const std::string& address,
                        const metrics::Registry& registry) try {
  return metrics::Exposer({address}, registry);
} catch (const Error& e) {
  throw ConfigError(fmt::format("{}: {}", key, e.what()));
}

}  // namespace

MetricsPage::MetricsPage(const std::string& address, std::string run)
    : run_(std::move(run)), exposer_(Listen(kMetricsKey, address, registry_)) {}

metrics::Labels MetricsPage::LabelsOf(const RoleId& id) const {
  return {
      {"run", run_}, {"role", id.role}, {"index", std::to_string(id.index)}};
}

MetricsPage::Member* MetricsPage::MemberOf(const RoleId& id) {
  if (const auto found = members_.find(id); found != members_.end()) {
    return &found->second;
  }
  if (members_.size() >= kMaxRoles) return nullptr;
  Member& member = members_[id];
  const metrics::Labels labels = LabelsOf(id);
  member.up = &registry_.AddGauge("replicant_fleet_role_up",
                                  "1 while the role runs, else 0.", labels);
  member.restarts = &registry_.AddCounter(
      "replicant_fleet_role_restarts_total",
      "Restarts of the role since the fleet started.", labels);
  member.waiting.counter = &registry_.AddCounter(
      "replicant_fleet_role_waiting_seconds_total",
      "Seconds that the role has waited for others.", labels);
  return &member;
}

void MetricsPage::Update(const std::vector<Supervisor::RoleView>& roles,
                         const std::vector<HeartbeatMonitor::Entry>& beats) {
  for (const Supervisor::RoleView& role : roles) {
    Member* member = MemberOf(role.id);
    if (member == nullptr) continue;
    member->up->Set(role.phase == RolePhase::kReady ? 1.0 : 0.0);
    if (role.incarnation == 0) continue;
    // a resumed run continues the count of incarnations
    if (member->first_incarnation == 0) {
      member->first_incarnation = role.incarnation;
    }
    const double restarts = role.incarnation - member->first_incarnation;
    member->restarts->Increment(restarts - member->restarts->value());
  }
  for (const auto& entry : beats) TakeIn(entry.beat);
}

void MetricsPage::AddSeries(const RoleId& id, const std::string& name,
                            BeatNumber::Kind kind, Member* member) {
  const bool is_gauge = kind == BeatNumber::Kind::kGauge;
  const bool is_known =
      is_gauge ? member->gauges.contains(name) : member->totals.contains(name);
  if (is_known || member->is_refused) return;
  const std::string series = SeriesName(id.role, name);
  const std::string help =
      fmt::format("{} of a role's heartbeats.", is_gauge ? "Gauge" : "Counter");
  try {
    if (is_gauge) {
      member->gauges[name] = &registry_.AddGauge(series, help, LabelsOf(id));
    } else {
      member->totals[name].counter =
          &registry_.AddCounter(series + "_total", help, LabelsOf(id));
    }
  } catch (const InvalidArgument& e) {
    spdlog::warn("the metrics page omits further numbers of {}: {}",
                 id.ToString(), e.what());
    member->gauges.erase(name);
    member->totals.erase(name);
    member->is_refused = true;
  }
}

void MetricsPage::TakeIn(const Heartbeat& beat) {
  Member* member = MemberOf(beat.id);
  if (member == nullptr) return;
  // the totals of a new process begin at zero
  if (beat.incarnation != member->incarnation) {
    member->incarnation = beat.incarnation;
    member->waiting.last = 0.0;
    for (auto& [name, total] : member->totals) total.last = 0.0;
  }
  const auto add = [](double value, Total* total) {
    const double grown = value - total->last;
    if (!std::isfinite(value) || grown <= 0.0) return;
    total->counter->Increment(grown);
    total->last = value;
  };
  add(beat.waiting_s, &member->waiting);
  for (const auto& [name, number] : beat.numbers) {
    AddSeries(beat.id, name, number.kind, member);
    if (number.kind == BeatNumber::Kind::kGauge) {
      if (const auto found = member->gauges.find(name);
          found != member->gauges.end()) {
        found->second->Set(number.value);
      }
    } else if (const auto found = member->totals.find(name);
               found != member->totals.end()) {
      add(number.value, &found->second);
    }
  }
}

void CheckMetricsAddress(std::string_view key, const std::string& address) {
  if (address.empty()) return;
  metrics::Registry registry;
  Listen(key, address, registry);
}

}  // namespace replicant::fleet
