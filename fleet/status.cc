#include "fleet/status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "base/metrics/format.h"

namespace replicant::fleet {
namespace {

// A side that waits less than this share of the time is no bottleneck.
constexpr double kLeastShare = 0.05;
// A disk that takes longer for one operation is reported.
constexpr double kLongDiskWaitS = 10.0;
// How long lost records are reported.
constexpr auto kRecent = std::chrono::minutes(1);
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// "learner: actors wait 45% (reason)" and its shorter forms.
std::vector<std::string> Forms(const std::string& limit,
                               const std::string& waiting, double share,
                               const std::string& reason) {
  const std::string sides =
      fmt::format("{}: {} {:.0f}%", limit, waiting, 100.0 * share);
  if (reason.empty()) return {sides, limit};
  return {fmt::format("{} ({})", sides, reason), sides, limit};
}

void AddDiskWait(const std::string& name, double seconds,
                 std::vector<std::string>* problems) {
  if (seconds < kLongDiskWaitS) return;
  problems->push_back(
      fmt::format("{} waits {:.0f} s for the disk", name, seconds));
}

// The problems that a heartbeat tells of.
std::vector<std::string> ProblemsOf(const Heartbeat& beat) {
  const auto number = [&beat](const char* name) {
    const auto entry = beat.numbers.find(name);
    return entry == beat.numbers.end() ? 0.0 : entry->second.value;
  };
  const std::string name = beat.id.ToString();
  std::vector<std::string> problems;
  // "3 evaluations" and more, if there are any
  const auto add = [&](double count, const char* noun,
                       const std::string& more) {
    if (count <= 0.0) return;
    problems.push_back(fmt::format("{:.0f} {}{} {}", count, noun,
                                   count == 1.0 ? "" : "s", more));
  };
  AddDiskWait(name, number("disk_wait_s"), &problems);
  add(number("cut_evaluations"), "evaluation",
      "had an episode without end: the environment needs a time limit");
  add(number("failed_evaluations"), "evaluation", "failed, see the log");
  add(number("endless_environments"), "environment",
      fmt::format("of {} without an end of an episode", name));
  add(number("failed_checkpoints"), "checkpoint",
      fmt::format("failed, the last good one {} ago",
                  metrics::FormatDuration(number("checkpoint_age_s"))));
  return problems;
}

}  // namespace

void FleetStatus::Update(const std::vector<Supervisor::RoleView>& roles,
                         const std::vector<HeartbeatMonitor::Entry>& beats,
                         bool is_stopping, Clock::TimePoint now,
                         double disk_wait_s) {
  MutexLock lock(mutex_);
  NoteDataFlow(roles);
  for (const auto& entry : beats) TakeIn(entry, now);
  problems_.clear();
  AddDiskWait("the fleet", disk_wait_s, &problems_);
  for (const Supervisor::RoleView& role : roles) {
    const auto found = members_.find(role.id);
    if (found == members_.end()) continue;
    Member& member = found->second;
    member.is_gone =
        role.phase != RolePhase::kStarting && role.phase != RolePhase::kReady;
    if (member.is_gone) continue;
    problems_.insert(problems_.end(), member.problems.begin(),
                     member.problems.end());
    if (member.dropped_at && now - *member.dropped_at < kRecent) {
      problems_.push_back(
          fmt::format("{} has lost {:.0f} records of its curves",
                      role.id.ToString(), member.num_dropped_by_all));
    }
  }
  limit_of_phases_ = is_stopping ? "stopping" : LimitOfPhases(roles);
}

std::string FleetStatus::Problem() const {
  MutexLock lock(mutex_);
  return fmt::format("{}", fmt::join(problems_, "; "));
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

void FleetStatus::TakeIn(const HeartbeatMonitor::Entry& entry,
                         Clock::TimePoint now) {
  const auto [found, is_new] = members_.try_emplace(
      entry.beat.id, Member{.waiting = metrics::RateMeter(window_)});
  Member& member = found->second;
  if (!is_new && entry.beat.incarnation != member.incarnation) {
    for (const auto& [name, number] : member.beat.numbers) {
      if (number.kind == BeatNumber::Kind::kCounter) {
        member.ended[name] += number.value;
      }
    }
  }
  if (is_new || entry.time != member.beat_time) {
    // close to the time at which the heartbeat was sent
    member.waiting.Add(now, entry.beat.waiting_s);
    if (!entry.beat.reason.empty()) member.reason = entry.beat.reason;
  }
  const auto dropped = entry.beat.numbers.find("dropped_records");
  if (dropped != entry.beat.numbers.end()) {
    const double count = dropped->second.value;
    // a new process counts from 0
    if (entry.beat.incarnation != member.incarnation) member.num_dropped = 0.0;
    if (count > member.num_dropped) member.dropped_at = now;
    member.num_dropped_by_all += count - member.num_dropped;
    member.num_dropped = count;
  }
  member.problems = ProblemsOf(entry.beat);
  member.incarnation = entry.beat.incarnation;
  member.beat = entry.beat;
  member.beat_time = entry.time;
}

std::string FleetStatus::LimitOfPhases(
    const std::vector<Supervisor::RoleView>& roles) const {
  for (const Supervisor::RoleView& role : roles) {
    switch (role.phase) {
      case RolePhase::kStarting:
        return role.id.ToString() + " starts";
      case RolePhase::kKilled:
        return role.id.ToString() + " is killed";
      case RolePhase::kBackingOff:
        return fmt::format("{} restarts in {:.0f} s ({})", role.id.ToString(),
                           std::ceil(role.backoff_s), role.last_failure);
      case RolePhase::kPending:
      case RolePhase::kReady:
      case RolePhase::kLeftOut:
      case RolePhase::kEnded:
        break;
    }
  }
  return "";
}

std::vector<const FleetStatus::Member*> FleetStatus::MembersOf(
    std::string_view role) const {
  std::vector<const Member*> present;
  std::vector<const Member*> all;
  for (const auto& [id, member] : members_) {
    if (id.role != role) continue;
    all.push_back(&member);
    if (!member.is_gone) present.push_back(&member);
  }
  return present.empty() ? all : present;
}

double FleetStatus::Sum(std::string_view role, std::string_view number) const {
  MutexLock lock(mutex_);
  double sum = 0.0;
  bool has_any = false;
  const auto add = [&](double value) {
    sum += value;
    has_any = true;
  };
  const std::string name(number);
  for (const auto& [id, member] : members_) {
    if (id.role != role) continue;
    const auto ended = member.ended.find(name);
    if (ended != member.ended.end()) add(ended->second);
    const auto now = member.beat.numbers.find(name);
    if (now != member.beat.numbers.end() &&
        now->second.kind == BeatNumber::Kind::kCounter) {
      add(now->second.value);
    }
  }
  for (const Member* const member : MembersOf(role)) {
    const auto now = member->beat.numbers.find(name);
    if (now != member->beat.numbers.end() &&
        now->second.kind == BeatNumber::Kind::kGauge) {
      add(now->second.value);
    }
  }
  return has_any ? sum : kNaN;
}

double FleetStatus::Mean(std::string_view role, std::string_view number) const {
  MutexLock lock(mutex_);
  double sum = 0.0;
  int count = 0;
  for (const Member* const member : MembersOf(role)) {
    const auto found = member->beat.numbers.find(std::string(number));
    if (found == member->beat.numbers.end()) continue;
    sum += found->second.value;
    ++count;
  }
  return count == 0 ? kNaN : sum / count;
}

double FleetStatus::Max(std::string_view role, std::string_view number) const {
  MutexLock lock(mutex_);
  double max = kNaN;
  for (const Member* const member : MembersOf(role)) {
    const auto found = member->beat.numbers.find(std::string(number));
    if (found == member->beat.numbers.end()) continue;
    max = std::fmax(max, found->second.value);  // NaN counts as none
  }
  return max;
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
  for (const Member* const member : MembersOf(role)) {
    const double share = member->waiting.rate();
    if (std::isnan(share)) continue;
    sum += std::clamp(share, 0.0, 1.0);
    ++count;
  }
  return count == 0 ? 0.0 : sum / count;
}

std::string FleetStatus::Reason(std::string_view role) const {
  for (const std::string_view source : {role, std::string_view(buffer_)}) {
    for (const Member* const member : MembersOf(source)) {
      if (!member->reason.empty()) return member->reason;
    }
  }
  return "";
}

std::string FleetStatus::Limit() const { return LimitForms().front(); }

std::vector<std::string> FleetStatus::LimitForms() const {
  MutexLock lock(mutex_);
  if (!limit_of_phases_.empty()) {
    return {limit_of_phases_,
            limit_of_phases_.substr(0, limit_of_phases_.find(" ("))};
  }
  const double consumer_share = WaitingShare(consumer_);
  const double producer_share = WaitingShare(producer_);
  const double share = std::max(consumer_share, producer_share);
  if (share < kLeastShare) return {"none"};
  // at times both sides wait at once, and neither delays the other
  if (std::min(consumer_share, producer_share) >= kLeastShare &&
      consumer_share + producer_share > 1.0) {
    return Forms(buffer_, fmt::format("{} and {}s wait", consumer_, producer_),
                 std::min(consumer_share, producer_share), Reason(buffer_));
  }
  // the other side delays the one that waits
  const bool is_consumer = consumer_share >= producer_share;
  const std::string reason = Reason(is_consumer ? consumer_ : producer_);
  const std::string side = is_consumer ? producer_ + "s" : consumer_;
  const std::string waiting =
      is_consumer ? consumer_ + " waits" : producer_ + "s wait";
  return Forms(side, waiting, share, reason);
}

void FleetStatus::AddTo(ProgressLine& line,
                        const std::vector<ProgressField>& fields) const {
  line.AddText("problem:", [this] { return Problem(); });
  for (const ProgressField& field : fields) {
    const auto sum_of = [this](const std::string& role,
                               const std::string& number) {
      return [this, role, number] {
        const double value = Sum(role, number);
        return std::isnan(value) ? 0.0 : value;
      };
    };
    const auto sum = sum_of(field.role, field.number);
    const auto add_mean = [&](std::string (*format)(double)) {
      line.AddText(field.label, [this, field, format] {
        const double mean = Mean(field.role, field.number);
        return std::isnan(mean) ? std::string("-") : format(mean);
      });
    };
    switch (field.kind) {
      case ProgressField::Kind::kCount:
        line.AddCount(field.label, sum, field.goal);
        break;
      case ProgressField::Kind::kRate:
        line.AddRate(field.label, sum);
        break;
      case ProgressField::Kind::kValue:
        add_mean(&metrics::FormatQuantity);
        break;
      case ProgressField::Kind::kDuration:
        add_mean(&metrics::FormatDuration);
        break;
      case ProgressField::Kind::kTime: {
        std::vector<ProgressLine::Goal> goals;
        for (const ProgressGoal& goal : field.goals) {
          goals.push_back({sum_of(goal.role, goal.number), goal.goal});
        }
        line.AddTime(std::move(goals));
        break;
      }
      case ProgressField::Kind::kLimit:
        line.AddForms("limit", [this] { return LimitForms(); });
        break;
    }
  }
}

}  // namespace replicant::fleet
