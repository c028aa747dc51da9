#include "fleet/run_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/fs.h"
#include "base/metrics/format.h"
#include "base/process.h"
#include "fleet/run_folder.h"

namespace replicant::fleet {
namespace {

using nlohmann::json;

constexpr auto kRateWindow = std::chrono::seconds(10);
constexpr int64_t kMaxReportBytes = 64 << 20;
// A fleet writes every second; after this long without a report it is called
// dead.
constexpr double kSilentS = 10.0;
// A host reports four times a second.
constexpr double kHostSilentS = 3.0;

std::string StateOf(const Supervisor::RoleView& role, const Heartbeat* beat) {
  switch (role.phase) {
    case RolePhase::kPending:
      return role.has_no_room ? "no host" : "pending";
    case RolePhase::kStarting:
      return "starting";
    case RolePhase::kReady:
      return beat == nullptr ? "running" : ToString(beat->state);
    case RolePhase::kKilled:
      return "killed";
    case RolePhase::kBackingOff:
      return fmt::format("restarts in {:.0f} s", std::ceil(role.backoff_s));
    case RolePhase::kLeftOut:
      return "left out";
    case RolePhase::kEnded:
      break;
  }
  return "ended";
}

// JSON has no NaN.
json ToJson(const std::map<std::string, double>& numbers) {
  json object = json::object();
  for (const auto& [name, value] : numbers) {
    if (std::isfinite(value)) object[name] = value;
  }
  return object;
}

// "updates 12.3k (68.3/s), return 633"; numbers that are 0 are left out.
std::string NumbersOf(const RunReport::Role& role) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : role.numbers) {
    if (value == 0.0) continue;
    parts.push_back(fmt::format("{} {}", name, metrics::FormatQuantity(value)));
    const auto rate = role.rates.find(name);
    if (rate == role.rates.end()) continue;
    parts.back() +=
        fmt::format(" ({}/s)", metrics::FormatQuantity(rate->second));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string RunReport::ToJson() const {
  json all = {{"status", status},       {"fleet", fleet},
              {"endpoint", endpoint},   {"time", time},
              {"limit", limit},         {"problem", problem},
              {"roles", json::array()}, {"hosts", json::array()}};
  for (const Role& role : roles) {
    all["roles"].push_back({{"name", role.name},
                            {"state", role.state},
                            {"reason", role.reason},
                            {"process", role.process},
                            {"host", role.host},
                            {"num_failures", role.num_failures},
                            {"last_failure", role.last_failure},
                            {"numbers", fleet::ToJson(role.numbers)},
                            {"rates", fleet::ToJson(role.rates)}});
  }
  for (const HostPool::HostView& host : hosts) {
    all["hosts"].push_back({{"name", host.name},
                            {"role", host.role},
                            {"slots", host.slots},
                            {"processes", host.num_processes},
                            {"silent_s", host.silent_s}});
  }
  // a reason may hold any bytes
  return all.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

RunReport RunReport::Read(const std::filesystem::path& run_folder) {
  const std::filesystem::path file = RunFolder::ReportFile(run_folder);
  if (!std::filesystem::exists(file)) {
    const auto status = RunFolder::StatusOf(run_folder);
    throw IoError(fmt::format(
        "{}: no report (status.json) was written; the run's status: {}",
        run_folder.string(), status ? fleet::ToString(*status) : "no run"));
  }
  const std::string text = ReadFile(file, kMaxReportBytes);
  try {
    const json all = json::parse(text);
    RunReport report{.status = all.at("status"),
                     .fleet = all.at("fleet"),
                     .endpoint = all.at("endpoint"),
                     .time = all.at("time"),
                     .limit = all.at("limit"),
                     .problem = all.at("problem"),
                     .roles = {},
                     .hosts = {}};
    for (const json& host : all.at("hosts")) {
      report.hosts.push_back({.name = host.at("name"),
                              .role = host.at("role"),
                              .slots = host.at("slots"),
                              .num_processes = host.at("processes"),
                              .silent_s = host.at("silent_s")});
    }
    for (const json& role : all.at("roles")) {
      report.roles.push_back({.name = role.at("name"),
                              .state = role.at("state"),
                              .reason = role.at("reason"),
                              .process = role.at("process"),
                              .host = role.at("host"),
                              .num_failures = role.at("num_failures"),
                              .last_failure = role.at("last_failure"),
                              .numbers = role.at("numbers"),
                              .rates = role.at("rates")});
    }
    return report;
  } catch (const json::exception& e) {
    throw IoError(fmt::format("{}: {}", file.string(), e.what()));
  }
}

std::string RunReport::Table(double now) const {
  const double age_s = now - time;
  const bool is_silent = status == "running" && age_s > kSilentS;
  std::string text = fmt::format(
      "status   {}, {} ago{}\nfleet    {}\n", status,
      metrics::FormatDuration(std::max(age_s, 0.0)),
      is_silent ? ": the fleet has died, or its disk has stalled" : "", fleet);
  // nothing limits a run that has ended
  if (status == "running") text += fmt::format("limit    {}\n", limit);
  if (!problem.empty()) text += fmt::format("problem  {}\n", problem);
  for (const HostPool::HostView& host : hosts) {
    text +=
        fmt::format("host     {}: {} of {} {} processes{}\n", host.name,
                    host.num_processes, host.slots, host.role,
                    host.silent_s > kHostSilentS
                        ? fmt::format(", silent for {:.0f} s", host.silent_s)
                        : "");
  }
  size_t name_width = 4;
  size_t state_width = 5;
  size_t host_width = 0;
  for (const Role& role : roles) {
    name_width = std::max(name_width, role.name.size());
    state_width = std::max(state_width, role.state.size());
    host_width = std::max(host_width, role.host.size());
  }
  // a run on one host has no column of hosts
  if (host_width > 0) host_width = std::max(host_width, size_t{4}) + 2;
  const auto add = [&](std::string_view name, std::string_view state,
                       std::string_view process, std::string_view failures,
                       std::string_view host, std::string_view numbers) {
    text += fmt::format("{:{}}  {:{}}  {:>8}  {:>8}  {:{}}{}\n", name,
                        name_width, state, state_width, process, failures,
                        host_width > 0 ? host : "", host_width, numbers);
  };
  text += "\n";
  add("role", "state", "process", "failures", "host", "numbers");
  for (const Role& role : roles) {
    add(role.name, role.state, std::to_string(role.process),
        std::to_string(role.num_failures), role.host, NumbersOf(role));
  }
  std::string remarks;
  for (const Role& role : roles) {
    if (!role.reason.empty()) {
      remarks += fmt::format("{} waits for: {}\n", role.name, role.reason);
    }
    if (!role.last_failure.empty()) {
      remarks += fmt::format("{} failed: {}\n", role.name, role.last_failure);
    }
  }
  return remarks.empty() ? text : text + "\n" + remarks;
}

RunReport RunReporter::Make(const Supervisor& supervisor,
                            const HeartbeatMonitor& monitor,
                            const HostPool* pool, const FleetStatus& status,
                            Clock::TimePoint now) {
  const auto beats = monitor.All();
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  RunReport report{.status = ToString(supervisor.result().status),
                   .fleet = HostAndPid(),
                   .endpoint = {},
                   .time = std::chrono::duration<double>(since_1970).count(),
                   .limit = status.Limit(),
                   .problem = status.Problem(),
                   .roles = {},
                   .hosts = {}};
  if (pool != nullptr) report.hosts = pool->Hosts();
  for (const Supervisor::RoleView& view : supervisor.Roles()) {
    if (!view.is_wanted && view.phase == RolePhase::kEnded) continue;
    // in the order of the ids
    const auto entry = std::lower_bound(
        beats.begin(), beats.end(), view.id,
        [](const auto& e, const RoleId& id) { return e.beat.id < id; });
    const bool has_beat = entry != beats.end() && entry->beat.id == view.id;
    const Heartbeat* const beat = has_beat ? &entry->beat : nullptr;
    RunReport::Role role{.name = view.id.ToString(),
                         .state = StateOf(view, beat),
                         .reason = {},
                         .process = beat == nullptr ? 0 : beat->pid,
                         .host = view.host,
                         .num_failures = view.num_failures,
                         .last_failure = view.last_failure,
                         .numbers = {},
                         .rates = {}};
    if (beat != nullptr) {
      auto& meters = meters_[view.id];
      if (beat->state == RoleState::kWaiting) role.reason = beat->reason;
      for (const auto& [name, number] : beat->numbers) {
        // a role has many curves, shown elsewhere
        if (name.starts_with(view.id.role + "/")) continue;
        role.numbers[name] = number.value;
        if (number.kind != BeatNumber::Kind::kCounter) continue;
        metrics::RateMeter& meter =
            meters.try_emplace(name, kRateWindow).first->second;
        meter.Add(now, number.value);
        if (!std::isnan(meter.rate())) role.rates[name] = meter.rate();
      }
    }
    report.roles.push_back(std::move(role));
  }
  return report;
}

}  // namespace replicant::fleet
