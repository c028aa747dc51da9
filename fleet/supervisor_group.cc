#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <csignal>

#include "base/exit_codes.h"
#include "fleet/log_follower.h"
#include "fleet/supervisor.h"

// The elastic group of a run. A generation of the group is one start of some of
// its members, by rank. It ends when a member ends: the others notice the loss
// and end by themselves within seconds. Then the next generation starts with
// all members that are not left out.
namespace replicant::fleet {
namespace {

// Maximum time that a member lives on after its group has lost another one. Its
// own deadline may be longer, for example at the barrier of a start.
constexpr auto kEndPatience = std::chrono::seconds(10);

}  // namespace

void Supervisor::FindGroup() {
  for (Member& member : members_) {
    if (member.spec.group_arguments) group_.members.push_back(&member);
  }
}

std::vector<Supervisor::Member*> Supervisor::RestOfGroup() const {
  std::vector<Member*> members;
  std::ranges::copy_if(
      group_.members, std::back_inserter(members),
      [](const Member* m) { return m->phase != RolePhase::kLeftOut; });
  return members;
}

void Supervisor::EndMember(Member& member, const ExitStatus& status,
                           bool is_lost) {
  const bool was_killed = member.phase == RolePhase::kKilled;
  const bool leads = &member == group_.members.front();
  member.phase = RolePhase::kPending;
  if (IsDoneWith(status.code) && !was_killed) {
    spdlog::info("{} is done", member.spec.id.ToString());
    if (leads && !group_.is_growing) return Complete(member, status);
    // a follower ends before the leader, which saves the rest
    if (!leads) return;
  }
  if (!group_.is_ending) {
    group_.is_ending = true;
    group_.end_by = now_ + kEndPatience;
  }
  const bool is_its_own = was_killed
                              ? !member.is_killed_with_group
                              : !IsDoneWith(status.code) &&
                                    status.code != kExitPeerLost && !is_lost;
  // nobody failed if a host is lost
  if (is_lost) group_.has_failed = true;
  if (!is_its_own) return;
  group_.has_failed = true;
  HandleFailure(member, was_killed ? member.killed_because : status.ToString(),
                status.signal == 0
                    ? LogTail(LogOf(member), /*max_lines=*/1, /*indent=*/"")
                    : "",
                WhyNoRestart(member, status));
}

bool Supervisor::LeaveOut(Member& member, const std::string& why) {
  if (member.spec.may_be_left_out) {
    WaitLeftOut(member, why, "the run continues without it");
    return true;
  }
  if (!member.spec.group_arguments || &member == group_.members.front()) {
    return false;
  }
  const auto num_left = static_cast<int>(RestOfGroup().size()) - 1;
  const std::string name = member.spec.id.ToString();
  if (num_left < member.spec.min_group_size) {
    spdlog::error("without {} its group has {} members; at least {} are needed",
                  name, num_left, member.spec.min_group_size);
    return false;
  }
  WaitLeftOut(member, why,
              fmt::format("the group continues with {} of {} members", num_left,
                          group_.members.size()));
  return true;
}

void Supervisor::WaitLeftOut(Member& member, const std::string& why,
                             const std::string& who_goes_on) {
  const RestartPolicy& policy = member.tracker.policy();
  member.phase = RolePhase::kLeftOut;
  member.start_at = member.tracker.AllowedAgainAt();
  spdlog::warn(
      "{}: {}, after all {} restarts allowed in {:g} s; {}, and it may start "
      "again in {:.3g} s; see {}",
      member.spec.id.ToString(), why, policy.budget, policy.window_s,
      who_goes_on, ToSeconds(member.start_at - now_), LogOf(member));
}

void Supervisor::StepGroup() {
  if (group_.members.empty()) return;
  const bool runs = std::ranges::any_of(
      group_.members,
      [](const Member* member) { return member->process != nullptr; });
  if (!runs) return StartGroup();
  if (!group_.end_by) return GrowGroup();
  if (now_ < *group_.end_by) return;
  for (Member* member : group_.members) {
    if (member->process == nullptr || member->phase == RolePhase::kKilled) {
      continue;
    }
    member->is_killed_with_group = true;
    Kill(*member, "still running after the end of its group");
  }
}

// Starts all members that are not left out, once none has to wait, for a host
// either.
void Supervisor::StartGroup() {
  Member& leader = *group_.members.front();
  if (group_.is_ending && !group_.has_failed && !group_.is_growing) {
    // each member reports the loss of another: the failure is the group's
    group_.has_failed = true;
    HandleFailure(leader, "its group has ended",
                  LogTail(LogOf(leader), /*max_lines=*/1, /*indent=*/""));
    if (IsStopping()) return;
  }
  for (Member* member : group_.members) {
    if (member->phase == RolePhase::kLeftOut && now_ >= member->start_at) {
      member->phase = RolePhase::kPending;
    }
  }
  const std::vector<Member*> members = RestOfGroup();
  const bool is_due =
      leader.spec.start_stage <= OpenStage() &&
      std::ranges::none_of(members, [&](const Member* m) {
        return (m->phase == RolePhase::kBackingOff && now_ < m->start_at) ||
               !backend_.HasRoom(m->spec);
      });
  if (!is_due) return;
  group_.is_ending = group_.has_failed = group_.is_growing = false;
  group_.end_by.reset();
  const auto size = static_cast<int>(members.size());
  for (int rank = 0; rank < size && !IsStopping(); ++rank) {
    Member& member = *members[static_cast<size_t>(rank)];
    member.is_killed_with_group = false;
    member.group_arguments = member.spec.group_arguments(rank, size);
    Start(member);
    if (member.process != nullptr) continue;
    // this member could not be started, so the others would wait for it in vain
    group_.is_ending = group_.has_failed = true;
    group_.end_by = now_;
  }
}

// Asks the leader to end if a member that is left out may start again; the
// group's next start includes it.
void Supervisor::GrowGroup() {
  const std::vector<Member*> members = RestOfGroup();
  const bool all_run = std::ranges::all_of(members, [](const Member* member) {
    return member->phase == RolePhase::kReady;
  });
  if (!all_run) return;
  for (const Member* member : group_.members) {
    if (member->phase != RolePhase::kLeftOut || now_ < member->start_at) {
      continue;
    }
    const std::string why =
        fmt::format("{} may start again; the group of {} members grows",
                    member->spec.id.ToString(), members.size());
    spdlog::info("{}", why);
    group_.is_growing = true;
    group_.end_by = now_ + FromSeconds(options_.config.stop_timeout_s);
    monitor_.OrderStop(group_.members.front()->spec.id, why);
    return;
  }
}

}  // namespace replicant::fleet
